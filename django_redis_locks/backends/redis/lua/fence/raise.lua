-- Reads the fence counter, and raises it to a minimum, for example after the store was moved or restored from older data.
-- The counter is never lowered.
--
-- KEYS  fence counter
-- ARGV  minimum (0: change nothing)
-- returns  {the counter, '0' if there is none, and the server's clock in microseconds}, both as text
local last = redis.call('GET', KEYS[1]) or '0'
if (tonumber(last) or 0) < tonumber(ARGV[1]) then
  last = ARGV[1]
  redis.call('SET', KEYS[1], last)
end
local time = redis.call('TIME')
return {last, time[1] .. string.format('%06d', time[2])}
