-- Lists the holds of permits.
--
-- uses now_ms read_value describe_value list_permits
-- KEYS  lock, ends of the leases
-- ARGV  kind
-- returns  {} nothing is held, and no limit is set; {kind, permits in use, limit, 1 if it was set, and for each hold {ms left,
--          fence, since in ms, permits, holder}}; or {-1, what} as permits/acquire
return list_permits(KEYS[1], KEYS[2], ARGV[1], now_ms(redis.call('TIME')))
