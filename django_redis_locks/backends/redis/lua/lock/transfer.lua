-- Gives a held lock another token: that of its journey when it is detached, that of the next hold when it is attached. So each
-- token is good for one step. A repeated request changes nothing, and never shortens the lease.
-- The fence stays; void are the reserved fences, and the mark of a grant that no request has claimed.
-- At maxmemory the first write is PEXPIRE, and the server allows all writes after it.
--
-- uses is_owned now_ms
-- KEYS  lock, index
-- ARGV  token, next token, lease in ms from now (0: unchanged), fence (0: as stored), age of the hold in ms, holder
-- returns  fence, or 0: not held with the token
local lock, index, lease, details = KEYS[1], KEYS[2], tonumber(ARGV[3]), ARGV[6]
local value = redis.pcall('GET', lock)
local repeated, denied = is_owned(value, ARGV[2])
if denied then return denied end
if not repeated and not is_owned(value, ARGV[1]) then return 0 end
local now, left = now_ms(redis.call('TIME')), redis.call('PTTL', lock)
if lease == 0 or repeated and left > lease then lease = left end
redis.call('PEXPIRE', lock, lease)
if index then redis.call('ZADD', index, 'XX', now + lease, lock) end
local fence = string.match(value, '^1 lock %S+ (%d+)')
if not repeated then
  if ARGV[4] ~= '0' then fence = ARGV[4] end
  if details ~= '' then details = ' ' .. details end
  local since = string.format('@%.0f', now - ARGV[5])
  redis.call('SET', lock, '1 lock ' .. ARGV[2] .. ' ' .. fence .. since .. details, 'KEEPTTL')
end
return tonumber(fence)
