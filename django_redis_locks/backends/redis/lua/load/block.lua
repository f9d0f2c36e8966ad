-- Takes the loads of some values from whoever has them, so that somebody may write these values by other means.
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
