-- Extends the lease or the permit of a load, if the token still has it. A lease is never shortened.
--
-- uses read_value read_load
-- KEYS  lease or permit, generation, replica lag
-- ARGV  token, ms
-- returns  {1 if the token has it, ms left of the replica lag}
local token, _, left = read_load(KEYS[1], redis.call('GET', KEYS[2]) or '0')
if token ~= ARGV[1] then return {0, 0} end
if left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {1, math.max(0, redis.call('PTTL', KEYS[3]))}
