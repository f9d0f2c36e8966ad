-- Renews a lock that was handed over inside the holder's process, or granted to it while it waited, and stores the holder and
-- fence of the new hold. The reserved fences become void: the lock can't be handed over locally without a request any more.
-- Late copies of earlier requests change nothing.
-- At maxmemory only the lease is renewed.
--
-- uses is_owned now_ms
-- KEYS  lock, index
-- ARGV  lease in ms, token, fence, age of the hold in ms, holder
-- returns  {1} renewed, {0} not held with this token
local lock, lease, index = KEYS[1], ARGV[1], KEYS[2]
local value = redis.pcall('GET', lock)
local owned, denied = is_owned(value, ARGV[2])
if denied then return denied end
if not owned then return {0} end
local now = now_ms(redis.call('TIME'))
if redis.call('PTTL', lock) < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
  if index then redis.call('ZADD', index, 'XX', now + lease, lock) end
end
local fence = ARGV[3]
local stored, reserved = string.match(value, '^1 lock %S+ (%d+)([+*]?)')
if tonumber(stored) < tonumber(fence) or stored == fence and reserved ~= '' then
  local details = ARGV[5]
  if details ~= '' then details = ' ' .. details end
  local since = string.format('@%.0f', now - ARGV[4])
  redis.pcall('SET', lock, '1 lock ' .. ARGV[2] .. ' ' .. fence .. since .. details, 'KEEPTTL')
end
return {1}
