import { expect, it } from 'vitest';
import { isReserved, parseAddress } from '../../../src/enrichment/geo-database.ts';

it.each([
  ['8.8.8.8', '8.8.8.8', 4],
  ['255.255.255.255', '255.255.255.255', 4],
  ['2a02:6b8::1', '2a02:6b8::1', 6],
  ['::1', '::1', 6],
  ['::8.8.8.8', '::8.8.8.8', 6],
  ['fe80::1%eth0', 'fe80::1', 6],
  ['::ffff:8.8.8.8', '8.8.8.8', 4],
  ['::FFFF:8.8.8.8', '8.8.8.8', 4],
  ['::ffff:0808:0808', '8.8.8.8', 4],
  ['0:0:0:0:0:ffff:192.0.2.33', '192.0.2.33', 4],
  ['0000:0000:0000:0000:0000:ffff:c000:0221', '192.0.2.33', 4],
  ['0::ffff:c000:221', '192.0.2.33', 4],
  ['::ffff:0:8.8.8.8', '::ffff:0:8.8.8.8', 6],
  ['1::ffff:808:808', '1::ffff:808:808', 6],
  ['::', '::', 6],
] as const)('The address %s is looked up as %s', (text, address, version) => {
  expect(parseAddress(text)).toMatchObject({ address, version });
});

it.each([
  '',
  ' ',
  '8.8.8',
  '8.8.8.8.8',
  '256.1.1.1',
  '08.8.8.8',
  '8.8.8.8 ',
  'localhost',
  '1:2:3',
  '::g',
  ':::',
  '1e3.1.1.1',
  '٨.8.8.8',
])('The text %j is not an address', (text) => {
  expect(parseAddress(text)).toBeUndefined();
});

it.each([
  ['9.255.255.255', false],
  ['10.0.0.0', true],
  ['10.255.255.255', true],
  ['11.0.0.0', false],
  ['100.63.255.255', false],
  ['100.64.0.0', true],
  ['100.127.255.255', true],
  ['100.128.0.0', false],
  ['172.15.255.255', false],
  ['172.16.0.0', true],
  ['172.31.255.255', true],
  ['172.32.0.0', false],
  ['192.167.255.255', false],
  ['192.168.0.0', true],
  ['192.169.0.0', false],
  ['198.17.255.255', false],
  ['198.19.255.255', true],
  ['223.255.255.255', false],
  ['224.0.0.0', true],
  ['255.255.255.255', true],
  ['::ffff:10.1.1.1', true],
  ['::ffff:8.8.8.8', false],
  ['::1', true],
  ['::8.8.8.8', true],
  ['::1:0:0', false],
  ['2001:1ff:ffff::1', true],
  ['2001:200::1', false],
  ['fbff::1', false],
  ['fdff::1', true],
  ['fe7f::1', false],
  ['febf::1', true],
  ['fec0::1', false],
  ['ff00::', true],
])('Whether the address %s is for a special purpose is %s', (text, expected) => {
  const address = parseAddress(text);
  expect(address !== undefined && isReserved(address)).toBe(expected);
});
