-- Returns the holder of the lock.
--
-- uses read_value
-- KEYS  lock
-- ARGV  kind
-- returns  {} free, else as lock/acquire: {0, ms left, fence, since in ms, holder} or {-1, what}
local value = redis.pcall('GET', KEYS[1])
if not value then return {} end
local token, fence, since, holder, left = read_value(KEYS[1], value, ARGV[1])
if not token then return fence end
return {0, left, fence, since, holder}
