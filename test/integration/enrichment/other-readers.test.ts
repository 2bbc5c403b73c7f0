import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openEnrichment, type UserAgentInfo } from '../../../src/enrichment/enrichment.ts';
import { findPackagedFile } from '../../../src/runtime/files/package-files.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';
import { findPythonEnrichers } from '../../helpers/python-engines.ts';

/** The first of them makes the Python environment. */
const slowMs = 900_000;

/** Results of other programs for the same addresses and User-Agents. */

/**
 * Chooses 100,000 addresses: the edges of every range of 1,000 spread over the database, just inside and outside,
 * mapped into IPv6 too; random ones of both versions; private ones; invalid texts. Returns the country of each
 * by MaxMind's own reader, which knows of neither mapped nor reserved addresses: Python's ipaddress does.
 */
const addressScript = `
import ipaddress, json, random, sys, maxminddb
reader = maxminddb.open_database(sys.argv[1])
random.seed(7)
chosen = []
ranges = [network for network, _ in reader]
for network in random.sample(ranges, 1000):
  first, last = int(network.network_address), int(network.broadcast_address)
  make = type(network.network_address)
  top = 2 ** network.max_prefixlen - 1
  for at in (first - 1, first, first + 1, (first + last) // 2, last - 1, last, last + 1):
    if 0 <= at <= top:
      address = make(at)
      chosen.append(str(address))
      if address.version == 4:
        chosen += ['::ffff:' + str(address), '::FFFF:%x:%x' % (at >> 16, at & 65535), '0:0:0:0:0:ffff:' + str(address)]
      else:
        chosen += [address.exploded, str(address).upper()]
for block in ('10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4', 'fc00::/7', 'fe80::/10', 'ff00::/8', '2001:db8::/32'):
  network = ipaddress.ip_network(block)
  chosen += [str(network[random.randrange(network.num_addresses)]) for _ in range(500)]
for length in (0, 1, 5, 15, 45):
  chosen += [''.join(random.choice('0123456789abcdef.:% x') for _ in range(length)) for _ in range(400)]
chosen += ['%d.%d.%d.%d' % tuple(random.choice([0, 1, 255, 256, 999]) for _ in range(4)) for _ in range(1000)]
chosen += [str(ipaddress.IPv6Address((0x2000 << 112) + random.getrandbits(125))) for _ in range(20000)]
while len(chosen) < 100000: chosen.append(str(ipaddress.IPv4Address(random.getrandbits(32))))
def country(text):
  try: address = ipaddress.ip_address(text)
  except ValueError: return None
  if address.version == 6:
    address = ipaddress.IPv6Address(int(address))
    if address.ipv4_mapped is not None: address = address.ipv4_mapped
    elif int(address) < 2 ** 32: return None
  if not address.is_global or address.is_multicast or address in ipaddress.ip_network('192.0.0.0/24'): return None
  record = reader.get(address)
  return None if record is None else record['country_code']
json.dump([[text, country(text)] for text in chosen], open(sys.argv[2], 'w'))
`;

test(
  "Countries of 100,000 addresses are those that another reader of the package's database gives",
  async ({ skip }) => {
    inWholeRun(skip);
    const python = (await findPythonEnrichers()) ?? skip('Python or its packages are missing');
    const file = path.join(testFolder(), 'countries.json');
    const database = findPackagedFile('@ip-location-db/geo-whois-asn-country-mmdb/geo-whois-asn-country.mmdb') ?? '';
    execFileSync(python, ['-c', addressScript, database, file]);
    const expected = JSON.parse(readFileSync(file, 'utf8')) as readonly (readonly [string, string | null])[];
    const enrichment = await openEnrichment();
    const found = expected.map(([address]) => [address, enrichment.findLocation(address)?.idCountryISOAlpha2 ?? null]);
    expect(found.filter(([, country], index) => country !== expected[index]?.[1])).toEqual([]);
    expect(expected.length).toBeGreaterThanOrEqual(100_000);
    expect(expected.filter(([, country]) => country !== null).length).toBeGreaterThan(60_000);
    expect(new Set(expected.map(([, country]) => country)).size).toBeGreaterThan(150);
    expect(enrichment.problems()).toEqual([]);
  },
  slowMs,
);

/**
 * Answers each different User-Agent of two editions of a list of measured traffic with what uap-core's patterns say.
 */
const agentScript = `
import json, os, sys, fake_useragent, ua_parser
here = os.path.dirname(fake_useragent.__file__)
files = [here + '/data/browsers.jsonl', sys.argv[1] + '/fake_useragent/data/browsers.jsonl']
texts = sorted({json.loads(line)['useragent'] for file in files for line in open(file) if line.strip()})
def version(of): return of and ('.'.join(part for part in (of.major, of.minor, of.patch, of.patch_minor) if part) or None)
def answer(text):
  said = ua_parser.parse(text)
  return [text, {
    'browser': said.user_agent and said.user_agent.family, 'browserVersion': version(said.user_agent),
    'idOsTitle': said.os and said.os.family, 'idOsVersionTitle': version(said.os),
    'idManufacturerTitle': said.device and said.device.brand, 'idDeviceModelTitle': said.device and said.device.model }]
json.dump([answer(text) for text in texts], open(sys.argv[2], 'w'))
`;

type Said = Readonly<Record<keyof UserAgentInfo, string | null>>;

/** Names by which the two parsers mean the same: each is reduced to the first of its line. */
const sameNames = [
  [
    'chrome',
    'chromemobile',
    'chromemobileios',
    'chromemobilewebview',
    'chromewebview',
    'chromeheadless',
    'headlesschrome',
  ],
  ['google', 'gsa'],
  ['macos', 'macosx'],
  ['chromeos', 'chromiumos'],
  ['edge', 'edgemobile'],
  ['firefox', 'firefoxmobile', 'firefoxios'],
  ['duckduckgo', 'duckduckgomobile'],
  ['opera', 'operamobile', 'operamobi'],
  ['silk', 'amazonsilk'],
  ['yandex', 'yandexbrowser'],
  ['safari', 'mobilesafari', 'mobilesafariuiwkwebview'],
  ['facebook', 'facebookmessenger'],
  // Not a maker but what another parser says where it knows none.
  ['', 'generic', 'genericandroid', 'genericandroidtablet', 'genericsmartphone', 'spider'],
];

function plainName(name: string | null | undefined): string {
  const plain = (name ?? '').toLowerCase().replace(/[^a-z0-9]/g, '');
  return sameNames.find((names) => names.includes(plain))?.[0] ?? plain;
}

const majorOf = (version: string | null | undefined): string => (version ?? '').split('.')[0] ?? '';

/** How far the parsers agree about each field, and the share of agents below which the test fails. */
const comparisons = [
  ['browser', plainName, 0.98],
  ['browserVersion', majorOf, 0.98],
  ['idOsTitle', plainName, 0.99],
  ['idOsVersionTitle', majorOf, 0.99],
  ['idManufacturerTitle', plainName, 0.98],
] as const;

test(
  'User-Agents of a published list are read as another parser reads them, as far as docs/lake.md says',
  async ({ skip }) => {
    inWholeRun(skip);
    const python = (await findPythonEnrichers()) ?? skip('Python or its packages are missing');
    const folder = testFolder();
    const file = path.join(folder, 'agents.json');
    execFileSync(python, ['-c', agentScript, path.join(path.dirname(python), '../beside'), file]);
    const expected = JSON.parse(readFileSync(file, 'utf8')) as readonly (readonly [string, Said])[];
    const enrichment = await openEnrichment();
    expect(expected.length).toBeGreaterThanOrEqual(1000);
    const agreed = comparisons.map(([field, plain, least]) => {
      const same = expected.filter(
        ([text, said]) => plain(enrichment.parseUserAgent(text)[field]) === plain(said[field]),
      );
      return { field, least, share: same.length / expected.length };
    });
    for (const { field, share, least } of agreed) expect(share, field).toBeGreaterThanOrEqual(least);
  },
  slowMs,
);
