-- Claims the loads of several values for a writer, and voids all other claims, so that the values can be written by other
-- means.
--
-- KEYS  generation (and for each value: lease, permit)
-- ARGV  token, lease in ms
-- returns  1
local generation = redis.call('GET', KEYS[1]) or '0'
for at = 2, #KEYS, 2 do
  redis.call('DEL', KEYS[at + 1])
  redis.call('SET', KEYS[at], '1 load ' .. ARGV[1] .. ' ' .. generation, 'PX', ARGV[2])
end
return 1
