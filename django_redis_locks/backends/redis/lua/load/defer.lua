-- Ends a load inside a transaction, if the token still has the claim. The returned permit allows to store the value when the
-- transaction commits, unless the value is written, invalidated or cleared before. Several transactions may share a permit,
-- and other loads may run at the same time.
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
