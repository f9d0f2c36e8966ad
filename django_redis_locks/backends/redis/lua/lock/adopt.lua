-- As lock/renew, for one lock that may have been taken over without asking: stores the hold that has it now, and that no later hold takes it
-- over so: the reserved fences are void. Never says less than is known: a late copy of an earlier request changes nothing. At
-- maxmemory the lease goes on and the rest has to wait.
--
-- uses is_owned now_ms
-- KEYS  lock, index
-- ARGV  lease in ms, token, fence, held for so many ms, holder
-- returns  {1} mine, {0} not mine
local lock, lease, index = KEYS[1], ARGV[1], KEYS[2]
local value = redis.pcall('GET', lock)
local mine, denied = is_owned(value, ARGV[2])
if denied then return denied end
if not mine then return {0} end
local now = now_ms(redis.call('TIME'))
if redis.call('PTTL', lock) < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
  if index then redis.call('ZADD', index, 'XX', now + lease, lock) end
end
local fence = ARGV[3]
local stored, reserved = string.match(value, '^1 lock %S+ (%d+)(%+?)')
if tonumber(stored) < tonumber(fence) or stored == fence and reserved ~= '' then
  local about = ARGV[5]
  if about ~= '' then about = ' ' .. about end
  local since = string.format('@%.0f', now - ARGV[4])
  redis.pcall('SET', lock, '1 lock ' .. ARGV[2] .. ' ' .. fence .. since .. about, 'KEEPTTL')
end
return {1}
