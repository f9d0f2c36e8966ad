-- Inspects several locks: the holder of each, and the number of queues that wait for it. Also inspects records, latches and
-- permits.
--
-- uses read_value describe_value list_permits read_latch now_ms
-- KEYS  locks, their waiters, the ends of their leases
-- ARGV  kind
-- returns  {ms of the server's clock, and for each lock one of}
--          {number of waiting queues}  free
--          {waiting, 0, ms left, fence, since in ms, holder}  held
--          {waiting, 1, ms left, version, fields, index: 'held', 'queued' or ''}  a record
--          {waiting, 2, ms left, what is left}  a latch
--          {waiting, 3, {kind, permits in use, limit, ...}}  permits, as permits/inspect
--          {waiting, -1, what}  another value
local now, last = now_ms(redis.call('TIME')), #KEYS / 3 - 1
local all = {now}
for n = 0, last do
  local lock = KEYS[1 + n]
  local waiting = redis.pcall('ZCOUNT', KEYS[2 + last + n], 1, '+inf') -- without the mark of a fair lock
  if type(waiting) == 'table' then waiting = 0 end
  local value = redis.pcall('GET', lock)
  if not value then
    all[#all + 1] = {waiting}
  elseif type(value) == 'string' and string.sub(value, 1, 8) == '1 latch ' then
    local latch, other = read_latch(lock)
    all[#all + 1] = latch and {waiting, 2, latch.ms_left, latch.left} or {waiting, unpack(other)}
  elseif value.err and string.find(value.err, 'WRONGTYPE') then
    local list = list_permits(lock, KEYS[3 + 2 * last + n], nil, now)
    if list.err then return list end
    if list[1] == -1 then all[#all + 1] = {waiting, unpack(list)} else all[#all + 1] = {waiting, 3, list} end
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
