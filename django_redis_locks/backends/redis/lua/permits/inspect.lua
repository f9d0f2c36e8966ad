-- Lists the holds of permits.
--
-- uses now_ms read_value describe_value list_permits
-- KEYS  lock, ends of the leases
-- ARGV  kind
-- returns  {} nothing is held, and no limit is set; {permits in use, limit, 1 if it was set, and for each hold {ms left, fence,
--          since in ms, permits, holder}}; or {-1, what} as permits/acquire
local lock, ends = KEYS[1], KEYS[2]
local stored = redis.pcall('HMGET', lock, 'kind')
if stored.err then return string.find(stored.err, 'WRONGTYPE') and describe_value(lock) or stored end
if not stored[1] and redis.call('TYPE', lock)['ok'] == 'none' then return {} end
return (list_permits(lock, ends, ARGV[1], now_ms(redis.call('TIME'))))
