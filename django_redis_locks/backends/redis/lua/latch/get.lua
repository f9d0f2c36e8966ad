-- Reads the latch. If an address is given and the latch of the known generation is closed, registers it as a waiter in the same
-- step.
--
-- uses register_waiter read_value read_latch
-- KEYS  latch, waiters
-- ARGV  and for a client that waits: known generation, address ('': none), arrival (0: now), 1 if more of its callers
--       wait, ms to keep the registration
-- returns  {what is left, generation, first generation, ms left, arrival}, all 0 if there is none; or {-1, what}
local found, other = read_latch(KEYS[1])
if not found then return other end
local since = 0
local address = ARGV[2]
if address and address ~= '' then
  if found.left > 0 and (found.generation == ARGV[1] or ARGV[4] == '1') then
    since = register_waiter(KEYS[2], address, ARGV[3], ARGV[5])
  else
    redis.call('ZREM', KEYS[2], address)
  end
end
return {found.left, found.generation or 0, found.first or 0, found.ms_left or 0, since}
