-- Gives a held lock another token: that of its journey when it is detached, that of the next hold when it is attached. So each
-- token is good for one step. Only the attach of a journey shortens the lease: a holder may still rely on any other one. A
-- repeated request changes nothing else, and never shortens it.
-- The fence stays; void are the reserved fences, and the mark of a grant that no request has claimed.
-- At maxmemory the first write is PEXPIRE, and the server allows all writes after it.
--
-- uses is_owned now_ms
-- KEYS  lock, index
-- ARGV  token, next token, lease in ms from now, 1 if that may be shorter, fence (0: as stored), age of the hold in ms, holder
-- returns  fence, or 0: not held with the token
local lock, index, lease, details = KEYS[1], KEYS[2], tonumber(ARGV[3]), ARGV[7]
local value = redis.pcall('GET', lock)
local repeated, denied = is_owned(value, ARGV[2])
if denied then return denied end
if not repeated and not is_owned(value, ARGV[1]) then return 0 end
local now, left = now_ms(redis.call('TIME')), redis.call('PTTL', lock)
if left <= 0 then return 0 end
if left > lease and (repeated or ARGV[4] ~= '1') then lease = left end
redis.call('PEXPIRE', lock, lease)
if index then redis.call('ZADD', index, 'XX', now + lease, lock) end
local fence = string.match(value, '^1 lock %S+ (%d+)')
if not repeated then
  if ARGV[5] ~= '0' then fence = ARGV[5] end
  if details ~= '' then details = ' ' .. details end
  local since = string.format('@%.0f', now - ARGV[6])
  redis.call('SET', lock, '1 lock ' .. ARGV[2] .. ' ' .. fence .. since .. details, 'PX', lease)
end
return tonumber(fence)
