-- Inspects several locks: the holder of each, and the number of queues that wait for it. Also inspects records and latches.
--
-- uses read_value read_latch now_ms
-- KEYS  locks, their waiters
-- ARGV  kind
-- returns  {ms of the server's clock, and for each lock one of}
--          {number of waiting queues}  free
--          {waiting, 0, ms left, fence, since in ms, holder}  held
--          {waiting, 1, ms left, version, fields, index: 'held', 'queued' or ''}  a record
--          {waiting, 2, ms left, what is left}  a latch
--          {waiting, -1, what}  another value
local all, last = {now_ms(redis.call('TIME'))}, #KEYS / 2 - 1
for n = 0, last do
  local lock = KEYS[1 + n]
  local waiting = redis.pcall('ZCARD', KEYS[2 + last + n])
  if type(waiting) == 'table' then waiting = 0 end
  local value = redis.pcall('GET', lock)
  if not value then
    all[#all + 1] = {waiting}
  elseif type(value) == 'string' and string.sub(value, 1, 8) == '1 latch ' then
    local latch, other = read_latch(lock)
    all[#all + 1] = latch and {waiting, 2, latch.ms_left, latch.left} or {waiting, unpack(other)}
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
