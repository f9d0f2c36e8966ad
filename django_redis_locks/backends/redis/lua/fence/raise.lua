-- Tells how far the fences have got, and has them go on from further ahead: for a store that was moved, or restored from
-- older data. A counter only ever moves forward.
--
-- KEYS  fence counter
-- ARGV  the least that it is to be (0: as it is)
-- returns  {the counter, '0' if there is none, and the server's clock in microseconds}, both as text
local last = redis.call('GET', KEYS[1]) or '0'
if (tonumber(last) or 0) < tonumber(ARGV[1]) then
  last = ARGV[1]
  redis.call('SET', KEYS[1], last)
end
local time = redis.call('TIME')
return {last, time[1] .. string.format('%06d', time[2])}
