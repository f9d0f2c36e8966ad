-- Ends a load without a value, if the token still has the claim. For some ms, other claims get the reason as their reply.
--
-- uses wake wake_all read_value read_load
-- KEYS  lease, waiters, generation
-- ARGV  token, ms to keep the reason (0: the next claim succeeds at once), reason
-- returns  1, or 0 if the claim is gone
local generation = redis.call('GET', KEYS[3]) or '0'
if read_load(KEYS[1], generation) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '0' then redis.pcall('SET', KEYS[1], '1 load ! ' .. generation .. ' ' .. ARGV[3], 'PX', ARGV[2]) end
wake_all(KEYS[1], KEYS[2])
return 1
