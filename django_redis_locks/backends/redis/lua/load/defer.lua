-- Ends a load inside a transaction, if the token still has the claim. The value may be stored with a permit until the
-- transaction commits, unless it is written, invalidated or cleared before. The permit excludes no load: several
-- transactions share it.
--
-- uses wake wake_all read_value read_load
-- KEYS  lease, waiters, generation, permit
-- ARGV  token, ms that the permit is valid
-- returns  the token of the permit, or '' if the claim is gone
local generation = redis.call('GET', KEYS[3]) or '0'
if read_load(KEYS[1], generation) ~= ARGV[1] then return '' end
redis.call('DEL', KEYS[1])
local permit = read_load(KEYS[4], generation) or ARGV[1]
redis.pcall('SET', KEYS[4], '1 load ' .. permit .. ' ' .. generation, 'PX', ARGV[2])
wake_all(KEYS[1], KEYS[2])
return permit
