-- Renews a hold of permits that was granted to a waiter, and stores its holder. Late copies of earlier requests change nothing.
-- The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses now_ms set_ends
-- KEYS  lock, ends of the leases, index
-- ARGV  lease in ms, token, fence, age of the hold in ms, holder
-- returns  {1} renewed, {0} not held with this token
local lock, ends, index = KEYS[1], KEYS[2], KEYS[3]
local lease, token, fence, age, holder = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now_ms(redis.call('TIME'))
local stored = redis.pcall('HMGET', lock, token, 'set')
if stored.err then return string.find(stored.err, 'WRONGTYPE') and {0} or stored end
local at = stored[1] and tonumber(redis.call('ZSCORE', ends, token) or nil)
if not at or at <= now then return {0} end
redis.call('PEXPIRE', ends, lease)
redis.call('ZADD', ends, 'XX', 'GT', now + lease, token)
local ends_at = set_ends(lock, ends, stored[2], now)
if index then redis.call('ZADD', index, 'XX', ends_at, lock) end
local permits, unclaimed = string.match(stored[1], '^(%d+) (%d+)%*')
if unclaimed == fence then
  if holder ~= '' then holder = ' ' .. holder end
  redis.call('HSET', lock, token, permits .. ' ' .. fence .. string.format('@%.0f', now - age) .. holder)
end
return {1}
