-- Renews a hold of permits that was granted to a waiter, and stores its holder. Late copies of earlier requests change nothing.
-- The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses now_ms extend_hold
-- KEYS  lock, ends of the leases, index
-- ARGV  lease in ms, token, fence, age of the hold in ms, holder
-- returns  {1} renewed, {0} not held with this token
local lock, token, fence, age, holder = KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now_ms(redis.call('TIME'))
local hold, denied = extend_hold(lock, KEYS[2], KEYS[3], token, tonumber(ARGV[1]), now)
if not hold then return denied or {0} end
local permits, unclaimed = string.match(hold, '^(%d+) (%d+)%*')
if unclaimed == fence then
  if holder ~= '' then holder = ' ' .. holder end
  redis.pcall('HSET', lock, token, permits .. ' ' .. fence .. string.format('@%.0f', now - age) .. holder)
end
return {1}
