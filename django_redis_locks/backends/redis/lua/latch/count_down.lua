-- Counts a latch down by one. The last count opens it and notifies all waiters. Changes nothing if the latch is open, if the
-- participant has counted, or if an earlier copy of the request was answered, whatever that did.
-- If the server has evicted the participants, the latch can't be counted down correctly, so it ends.
-- The first write is that of remember_request, which a server at maxmemory allows, and then all others of the script.
--
-- uses wake wake_all read_value read_latch write_latch now_ms remember_request
-- KEYS  latch, waiters, participants, recent requests
-- ARGV  nonce, participant ('': none), ms to remember the nonce
-- returns  what is left, or {-1, what}
local latch, participants, nonce, participant = KEYS[1], KEYS[3], ARGV[1], ARGV[2]
local found, other = read_latch(latch)
if not found then return other end
if redis.call('ZSCORE', KEYS[4], nonce) then return found.left end
remember_request(KEYS[4], nonce, ARGV[3])
if found.left == 0 then return 0 end
if redis.call('ZCARD', participants) ~= found.participants then
  redis.call('DEL', latch, participants)
  wake_all(latch, KEYS[2])
  return 0
end
if participant ~= '' then
  if redis.call('ZSCORE', participants, participant) then return found.left end
  found.participants = found.participants + 1
end
if participant ~= '' then redis.call('ZADD', participants, 0, participant) end
redis.call('PEXPIRE', participants, found.lifetime)
found.left = found.left - 1
if found.left == 0 then
  redis.call('DEL', participants)
  found.participants = 0
end
write_latch(latch, found)
if found.left == 0 then wake_all(latch, KEYS[2]) end
return found.left
