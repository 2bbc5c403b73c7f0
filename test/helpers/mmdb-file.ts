import { writeFileSync } from 'node:fs';

/** Writes databases in MaxMind's MMDB format, as an operator may supply them: records of 24 bits, no shared values. */

export type MmdbValue = string | number | readonly MmdbValue[] | { readonly [name: string]: MmdbValue };

/** A network (`81.2.0.0/16`, `2a02::/16`) and its record. */
export type MmdbNetwork = readonly [network: string, record: MmdbValue];

type Node = [left: Node | number | undefined, right: Node | number | undefined];

function control(type: number, size: number): Buffer {
  const length = size < 29 ? [size] : size < 285 ? [29, size - 29] : [30, (size - 285) >> 8, (size - 285) & 255];
  const [first = 0, ...rest] = length;
  return Buffer.from(type < 8 ? [(type << 5) | first, ...rest] : [first, type - 7, ...rest]);
}

function encode(value: MmdbValue): Buffer {
  if (typeof value === 'string') {
    const text = Buffer.from(value);
    return Buffer.concat([control(2, text.length), text]);
  }
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return Buffer.concat([control(6, 4), bytes]);
  }
  if (Array.isArray(value)) return Buffer.concat([control(11, value.length), ...value.map(encode)]);
  const members = Object.entries(value as Readonly<Record<string, MmdbValue>>);
  return Buffer.concat([control(7, members.length), ...members.flatMap(([name, one]) => [encode(name), encode(one)])]);
}

function groups(text: string): string[] {
  return text === '' ? [] : text.split(':');
}

/** Returns the bits of a network; in an IPv6 tree those of IPv4 follow 96 zeros. */
function bitsOf(network: string, ipVersion: 4 | 6): number[] {
  const [address = '', length = ''] = network.split('/');
  const isV4 = !address.includes(':');
  const [head = '', tail = ''] = address.split('::');
  const missing = 8 - groups(head).length - groups(tail).length;
  const parts = isV4
    ? address.split('.').map((part) => Number(part).toString(2).padStart(8, '0'))
    : [...groups(head), ...Array.from({ length: missing }, () => '0'), ...groups(tail)].map((part) =>
        Number.parseInt(part, 16).toString(2).padStart(16, '0'),
      );
  const bits = `${isV4 && ipVersion === 6 ? '0'.repeat(96) : ''}${parts.join('').slice(0, Number(length))}`;
  return bits.split('').map(Number);
}

function insert(root: Node, bits: readonly number[], record: number): void {
  let node = root;
  for (const [index, bit] of bits.entries()) {
    if (index === bits.length - 1) node[bit as 0 | 1] = record;
    else {
      const next = node[bit as 0 | 1];
      const below: Node = Array.isArray(next) ? next : [undefined, undefined];
      node[bit as 0 | 1] = below;
      node = below;
    }
  }
}

/** Writes a database of some networks that do not overlap; `builtAt` in Unix seconds. */
export function writeMmdbFile(
  file: string,
  networks: readonly MmdbNetwork[],
  { ipVersion = 6, builtAt = 1_700_000_000 }: { readonly ipVersion?: 4 | 6; readonly builtAt?: number } = {},
): void {
  const root: Node = [undefined, undefined];
  const records = networks.map(([, record]) => encode(record));
  for (const [index, [network]] of networks.entries()) insert(root, bitsOf(network, ipVersion), index);
  const nodes: Node[] = [];
  const number = (node: Node): void => {
    nodes.push(node);
    for (const side of node) if (Array.isArray(side)) number(side);
  };
  number(root);
  const places = new Map(nodes.map((node, index) => [node, index]));
  const offsets = records.map((_, index) => records.slice(0, index).reduce((sum, { length }) => sum + length, 0));
  const tree = Buffer.alloc(nodes.length * 6);
  for (const [index, node] of nodes.entries())
    for (const [side, to] of node.entries()) {
      const value =
        to === undefined
          ? nodes.length
          : Array.isArray(to)
            ? (places.get(to) ?? 0)
            : nodes.length + 16 + (offsets[to] ?? 0);
      tree.writeUIntBE(value, index * 6 + side * 3, 3);
    }
  const metadata = encode({
    binary_format_major_version: 2,
    binary_format_minor_version: 0,
    build_epoch: builtAt,
    database_type: 'Test',
    description: { en: 'written by a test' },
    ip_version: ipVersion,
    languages: ['en'],
    node_count: nodes.length,
    record_size: 24,
  });
  const marker = Buffer.from('ABCDEF4D61784D696E642E636F6D', 'hex');
  writeFileSync(file, Buffer.concat([tree, Buffer.alloc(16), ...records, marker, metadata]));
}
