-- Gives a hold of permits another token, as lock/transfer does a lock. Its permits and its fence stay. Only the attach of a
-- journey shortens the lease; a repeated request changes nothing else, and never shortens it.
-- The first write is PEXPIRE, which a server at maxmemory allows.
--
-- uses now_ms extend_hold
-- KEYS  lock, ends of the leases, index
-- ARGV  token, next token, lease in ms from now, 1 if that may be shorter, fence (0: as stored), age of the hold in ms, holder
-- returns  fence, or 0: not held with the token
local lock, ends, index, token, next_token = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local lease, fence, holder = tonumber(ARGV[3]), ARGV[5], ARGV[7]
local now = now_ms(redis.call('TIME'))
local moved, denied = extend_hold(lock, ends, index, next_token, lease, now)
if moved then return tonumber(string.match(moved, '^%d+ (%d+)')) end
local hold
if not denied then hold, denied = extend_hold(lock, ends, index, token, lease, now) end
if not hold then return denied or 0 end
local permits, stored = string.match(hold, '^(%d+) (%d+)')
if fence == '0' then fence = stored end
if holder ~= '' then holder = ' ' .. holder end
local ended, state = unpack(redis.call('HMGET', lock, next_token, 'permits'))
local head, used, first, last = string.match(state, '^(.* )(%d+) (%d+) (%d+)$')
if ended then used = used - string.match(ended, '^%d+') end -- its lease has ended, and no step has dropped it yet
local at = ARGV[4] == '1' and now + lease or tonumber(redis.call('ZSCORE', ends, token))
redis.call('PEXPIRE', ends, last - now)
redis.call('ZADD', ends, at, next_token)
redis.call('ZREM', ends, token)
redis.call('HDEL', lock, token)
redis.call('HSET', lock, next_token, permits .. ' ' .. fence .. string.format('@%.0f', now - ARGV[6]) .. holder,
  'permits', head .. string.format('%d %.0f %s', used, math.min(first, at), last))
return tonumber(fence)
