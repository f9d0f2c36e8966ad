-- Sets the count of a latch that is open: it was never set, or was counted down to 0. A copy of the request changes nothing, and
-- gets the same reply, also if the latch has opened since.
-- The generation of a latch is a fence, so it is never reused.
-- At maxmemory the first write of a request that sets the latch fails, before anything is changed.
--
-- uses read_value read_latch write_latch next_fence now_ms remember_request
-- KEYS  latch, fence counter, participants, recent requests
-- ARGV  nonce, count, ms that the latch lives after its last change, ms to remember the nonce
-- returns  1 set, 0 it is set already, or {-1, what}
local latch, nonce = KEYS[1], ARGV[1]
local found, other = read_latch(latch)
if not found then return other end
if redis.call('ZSCORE', KEYS[4], nonce) then return 1 end
local refused = nonce .. ' refused'
if redis.call('ZSCORE', KEYS[4], refused) then return 0 end
if found.left > 0 then
  remember_request(KEYS[4], refused, ARGV[4])
  return 0
end
local generation, refusal = next_fence(KEYS[2], found.generation, redis.call('TIME'), 0)
if not generation then return refusal end
redis.call('DEL', KEYS[3])
write_latch(latch, {
  nonce = nonce, generation = generation, first = found.first or generation, left = ARGV[2], participants = 0,
  lifetime = ARGV[3],
})
remember_request(KEYS[4], nonce, ARGV[4])
return 1
