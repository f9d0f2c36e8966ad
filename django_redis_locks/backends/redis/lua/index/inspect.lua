-- Inspects several locks: the holder of each, and the number of queues that wait for it. Also inspects records.
--
-- uses read_value now_ms
-- KEYS  locks, their waiters
-- ARGV  kind
-- returns  {ms of the server's clock, and for each lock one of}
--          {number of waiting queues}  free
--          {waiting, 0, ms left, fence, since in ms, holder}  held
--          {waiting, 1, ms left, version, fields, index: 'held', 'queued' or ''}  a record
--          {waiting, -1, what}  another value
local all, last = {now_ms(redis.call('TIME'))}, #KEYS / 2 - 1
for n = 0, last do
  local lock = KEYS[1 + n]
  local waiting = redis.pcall('ZCARD', KEYS[2 + last + n])
  if type(waiting) == 'table' then waiting = 0 end
  local value = redis.pcall('GET', lock)
  if not value then
    all[#all + 1] = {waiting}
  else
    local kind = ARGV[1]
    if type(value) == 'string' and string.sub(value, 1, 9) == '1 record ' then kind = 'record' end
    local token, fence, since, holder, left = read_value(lock, value, kind)
    if token and kind == 'record' then
      all[#all + 1] = {waiting, 1, left, fence, holder, string.match(token, '%.(%l+)$') or ''}
    elseif token then
      all[#all + 1] = {waiting, 0, left, fence, since, holder}
    elseif fence.err then
      return fence
    else
      all[#all + 1] = {waiting, unpack(fence)}
    end
  end
end
return all
