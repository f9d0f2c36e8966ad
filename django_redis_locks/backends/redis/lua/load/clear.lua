-- Starts a new generation. The value of a load from an earlier generation is not stored.
--
-- KEYS  generation
-- ARGV  (none)
-- returns  the number of the generation, which is never reused
local time = redis.call('TIME')
local clock, last = time[1] * 1000000 + time[2], tonumber(redis.call('GET', KEYS[1]) or 0)
local generation = string.format('%.0f', math.max(clock, last + 1))
redis.call('SET', KEYS[1], generation)
return generation
