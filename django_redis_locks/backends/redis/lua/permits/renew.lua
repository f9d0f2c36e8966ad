-- Extends the leases of several holds of permits to some ms from now, each only its own. A lease is never shortened, so a late
-- copy of an earlier request changes nothing. The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses now_ms set_ends
-- KEYS  locks, ends of their leases (of each hold the lock and the ends), index
-- ARGV  lease in ms, token of each hold
-- returns  for each hold: 1 renewed, 0 not held with this token
local lease, last = tonumber(ARGV[1]), #ARGV - 2
local now = now_ms(redis.call('TIME'))
local index, renewed = KEYS[3 + 2 * last], {}
for n = 0, last do
  local lock, ends, token = KEYS[1 + 2 * n], KEYS[2 + 2 * n], ARGV[2 + n]
  local stored = redis.pcall('HMGET', lock, token, 'set')
  if stored.err and not string.find(stored.err, 'WRONGTYPE') then return stored end
  local at = not stored.err and stored[1] and tonumber(redis.call('ZSCORE', ends, token) or nil)
  local held = at and at > now
  renewed[1 + n] = held and 1 or 0
  if held and at < now + lease then
    redis.call('PEXPIRE', ends, lease)
    redis.call('ZADD', ends, 'XX', now + lease, token)
    local ends_at = set_ends(lock, ends, stored[2], now)
    if index then redis.call('ZADD', index, 'XX', ends_at, lock) end
  end
end
return renewed
