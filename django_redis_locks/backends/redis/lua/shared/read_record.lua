-- Reads a record: {0} if there is none, {0, ms left, version, fields}, or {-1, what} if the key holds another value. The
-- second result is the nonce of its last write.
local function read_record(key)
  local value = redis.pcall('GET', key)
  if not value then return {0} end
  local nonce, version, _, fields, left = read_value(key, value, 'record')
  if not nonce then return version end
  return {0, left, version, fields}, nonce
end
