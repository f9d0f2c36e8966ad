-- Reads the record. If an address is given and the record is unchanged, registers it as a waiter in the same step.
--
-- uses register_waiter read_value read_record
-- KEYS  record, waiters
-- ARGV  and for a client that waits: known version (0: absent), address ('': none), arrival (0: now), 1 if more of its
--       callers wait, ms to keep the registration
-- returns  {0, ms left, version, fields, arrival} or {0, arrival} if it is absent, or {-1, what}
local current = read_record(KEYS[1])
if current[1] ~= 0 then return current end
local since = 0
local address = ARGV[2]
if address and address ~= '' then
  if (current[3] or '0') == ARGV[1] or ARGV[4] == '1' then
    since = register_waiter(KEYS[2], address, ARGV[3], ARGV[5])
  else
    redis.call('ZREM', KEYS[2], address)
  end
end
current[#current + 1] = since
return current
