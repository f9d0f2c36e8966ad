-- Says of several locks who holds them, and how many queues of processes wait.
--
-- uses read ms
-- KEYS  lock, its waiters, lock, its waiters, ...
-- ARGV  kind
-- returns  {ms of the server's clock, then for each lock}: {how many wait} if it is free, else {how many, 0, ms left,
--          fence, since in ms, holder} or {how many, -1, what}
local all = {now_ms(redis.call('TIME'))}
for n = 1, #KEYS, 2 do
  local waiting = redis.pcall('ZCARD', KEYS[n + 1])
  if type(waiting) == 'table' then waiting = 0 end
  local value = redis.pcall('GET', KEYS[n])
  if not value then
    all[#all + 1] = {waiting}
  else
    local token, fence, since, holder, left = read(KEYS[n], value, ARGV[1])
    if token then
      all[#all + 1] = {waiting, 0, left, fence, since, holder}
    elseif fence.err then
      return fence
    else
      all[#all + 1] = {waiting, unpack(fence)}
    end
  end
end
return all
