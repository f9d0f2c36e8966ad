-- Reads the value of a lock, record or load: token or nonce, fence, since in ms, further text, and ms left. If the key holds
-- another value: nil and {-1, what}.
local function read_value(key, value, kind)
  if value.err then
    if not string.find(value.err, 'WRONGTYPE') then return nil, value end -- the user may not read it
    local what = redis.call('TYPE', key)['ok']
    local format, found = string.match(what == 'hash' and redis.call('HMGET', key, 'permits')[1] or '', '^(%d+) (%l+)')
    if format == '1' then what = 'lock of kind ' .. found elseif format then what = 'lock of format ' .. format end
    return nil, {-1, 'a ' .. what}
  end
  local format, found, token, fence, since, details = string.match(value, '^(%d+) (%l+) (%S+) (%d+)[+*]?@?(%d*) ?(.*)$')
  if not format then return nil, {-1, 'a string'} end
  local what = found == 'record' and 'a record' or 'a lock'
  if format ~= '1' then return nil, {-1, what .. ' of format ' .. format} end
  if found ~= kind then return nil, {-1, found == 'record' and what or 'a lock of kind ' .. found} end
  local left = redis.call('PTTL', key)
  if left < 0 then return nil, {-1, what .. ' without expiry'} end
  return token, fence, since == '' and string.sub(fence, 1, -4) or since, details, left
end
