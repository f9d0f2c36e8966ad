-- Extends the leases of several holds of permits to some ms from now, each only its own. A lease is never shortened, so a late
-- copy of an earlier request changes nothing. The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses now_ms extend_hold
-- KEYS  locks, ends of their leases (of each hold the lock and the ends), index
-- ARGV  lease in ms, token of each hold
-- returns  for each hold: 1 renewed, 0 not held with this token
local lease, last = tonumber(ARGV[1]), #ARGV - 2
local now = now_ms(redis.call('TIME'))
local index, renewed = KEYS[3 + 2 * last], {}
for n = 0, last do
  local hold, denied = extend_hold(KEYS[1 + 2 * n], KEYS[2 + 2 * n], index, ARGV[2 + n], lease, now)
  if denied then return denied end
  renewed[1 + n] = hold and 1 or 0
end
return renewed
