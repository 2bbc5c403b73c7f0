import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { calculateSize, type SizeOptions } from '../../../src/cli/size.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const page = readFileSync(path.join(packageRoot, 'docs/sizing.md'), 'utf8');

/** Returns the cells of the rows of a table of the page, without its head. */
function readTable(section: string): readonly (readonly string[])[] {
  const [, text = ''] = page.split(`\n## ${section}\n`);
  const lines = (text.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('|'));
  return lines.slice(2).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const usual: SizeOptions = {
  eventsPerDay: 1_000_000,
  bytes: 560,
  batch: 17,
  keys: false,
  peak: 4,
  days: 365,
  priceVcpu: 20,
  priceMemory: 2.5,
  priceDisk: 0.08,
  priceBucket: 0.023,
  priceWrites: 5,
  priceReads: 0.4,
};

const toNumber = (text: string): number => Number(text.replaceAll(',', ''));
const toEvents = (text: string): number => toNumber(text.replace(' million', '')) * 1e6;
const format = (value: number): string => value.toLocaleString('en-US');

function formatTime(seconds: number): string {
  if (seconds >= 86_400) return `${Math.round(seconds / 86_400)} days`;
  return seconds >= 3600 ? `${Math.round(seconds / 3600)} hours` : `${Math.round(seconds / 60)} minutes`;
}

/** Returns the numbers of a cell of the formulas. */
function figuresOf(quantity: RegExp): readonly number[] {
  const cell = readTable('Formulas').find(([name = '']) => quantity.test(name))?.[1] ?? '';
  return (cell.match(/\d[\d,]*(?:\.\d+)?/g) ?? []).map(toNumber);
}

const nextPower = (value: number): number => Math.max(2, 2 ** Math.ceil(Math.log2(value)));

describe('tributary size', () => {
  it('The table of machines in docs/sizing.md is what the command calculates', () => {
    const rows = readTable('One machine');
    expect(rows).toHaveLength(4);
    for (const [events = '', ...cells] of rows) {
      const given = { ...usual, eventsPerDay: toEvents(events) };
      const { peakEventsPerSecond, oneMachine } = calculateSize(given);
      const singles = calculateSize({ ...given, batch: 1 }).oneMachine;
      expect(cells, events).toEqual([
        format(peakEventsPerSecond),
        `${oneMachine.vcpu}, ${singles.vcpu}`,
        `${format(Math.round((31.4 * given.eventsPerDay * 365) / 1024 ** 3))} GiB`,
        formatTime(oneMachine.secondsUntilStreamIsFull),
      ]);
      expect(oneMachine.backupGiB, events).toBe(Math.ceil((31.4 * given.eventsPerDay * 365) / 1024 ** 3));
    }
  });

  it('The table of costs in docs/sizing.md is what the command calculates', () => {
    const rows = readTable('Cost');
    expect(rows).toHaveLength(4);
    for (const [events = '', ...cells] of rows) {
      const { oneMachine, cluster } = calculateSize({ ...usual, eventsPerDay: toEvents(events) });
      const costs = [oneMachine, cluster].map(
        ({ costPerMonth, costPerMillionEvents }) => `${format(costPerMonth)}, ${costPerMillionEvents}`,
      );
      expect(cells, events).toEqual([
        ...costs,
        format(Math.round(cluster.writesPerMonth / 1e6) + Math.round(cluster.readsPerMonth / 1e6)),
      ]);
    }
  });

  it.each([
    { ...usual, eventsPerDay: 300_000_000 },
    { ...usual, eventsPerDay: 2_000_000_000, bytes: 1400, batch: 3, peak: 6.5, days: 90, keys: true },
    { ...usual, eventsPerDay: 1000, bytes: 90, batch: 1, days: 1 },
  ])('The command calculates $eventsPerDay events a day as the formulas of docs/sizing.md say', (given) => {
    const { eventsPerDay, bytes, batch, peak, days, keys } = given;
    const [requestUs = 0, eventUs = 0] = figuresOf(/^CPU of import/);
    const [brokerUs = 0] = figuresOf(/^CPU of the broker/);
    const [compactUs = 0] = figuresOf(/^CPU of the compactor/);
    const [usualBytes = 0, leastFactor = 0] = figuresOf(/^factor/);
    const [twice = 0] = figuresOf(/^vCPU/);
    const [idle = 0, compactor = 0, worker = 0, workers = 0] = figuresOf(/^memory of one machine/);
    const [keyBytes = 0] = figuresOf(/^memory of keys/);
    const [lakeBytes = 0] = figuresOf(/^lake/);
    const [streamBytes = 0] = figuresOf(/^stream/);
    const streamGiB = figuresOf(/^disk/).at(-1) ?? 0;
    const [, everySeconds = 0, flushMebibytes = 0] = figuresOf(/^flushes/);
    const idleRequests = figuresOf(/^requests of idle hosts/);
    const [flushWrites = 0, flushReads = 0] = figuresOf(/^requests of a flush/);

    const gib = 1024 ** 3;
    const rate = (eventsPerDay / 86_400) * peak;
    const factor = Math.max(leastFactor, bytes / usualBytes);
    const us = requestUs / batch + eventUs + brokerUs + compactUs;
    const lake = (forDays: number): number => (eventsPerDay * forDays * lakeBytes * bytes) / usualBytes / gib;
    const keyGiB = keys ? (eventsPerDay / batch) * (keyBytes / gib) : 0;
    const { peakEventsPerSecond, oneMachine, cluster } = calculateSize(given);
    expect(peakEventsPerSecond).toBe(Math.round(rate));
    expect(oneMachine).toMatchObject({
      vcpu: nextPower((twice * rate * us * factor) / 1e6),
      memoryGiB: nextPower(idle + compactor + keyGiB + worker * workers),
      diskGiB: Math.ceil(lake(days) + lake(1) + streamGiB),
      backupGiB: Math.ceil(lake(days)),
    });
    const seconds = 30.4 * 86_400;
    const streamRate = (eventsPerDay / 86_400) * streamBytes * (bytes / usualBytes);
    const flushes = seconds * Math.max(1 / everySeconds, streamRate / (flushMebibytes * 1024 ** 2));
    const hosts = [cluster.hosts.ingest, cluster.hosts.compact, cluster.hosts.export];
    const requests = (kind: 0 | 1, ofFlush: number): number =>
      hosts.reduce((sum, one, index) => sum + one.hosts * (idleRequests[2 * index + kind] ?? 0), 0) * seconds +
      flushes * ofFlush;
    expect(cluster.writesPerMonth / requests(0, flushWrites)).toBeCloseTo(1, 2);
    expect(cluster.readsPerMonth / requests(1, flushReads)).toBeCloseTo(1, 2);
  });

  it('A cluster can lose a host of each role, and its cost follows the prices', () => {
    const { cluster, isMeasured } = calculateSize({ ...usual, eventsPerDay: 10_000_000_000 });
    expect(isMeasured).toBe(false);
    for (const [role, { hosts, vcpu }] of Object.entries(cluster.hosts)) {
      expect(hosts, role).toBeGreaterThanOrEqual(2);
      expect(vcpu, role).toBeLessThanOrEqual(8);
    }
    const { ingest } = cluster.hosts;
    // 2 × 463,000 events/s × 8.49 µs = 7.86 vCPU, and a spare host.
    expect(ingest).toMatchObject({ hosts: 2, vcpu: 8 });
    const free = { priceVcpu: 0, priceMemory: 0, priceDisk: 0, priceBucket: 0, priceWrites: 0, priceReads: 0 };
    const costOf = (prices: Partial<SizeOptions>): number =>
      calculateSize({ ...usual, ...free, ...prices }).cluster.costPerMonth;
    expect(costOf({})).toBe(0);
    const small = calculateSize(usual).cluster;
    expect(costOf({ priceVcpu: 3 })).toBe(3 * small.vcpu);
    expect(costOf({ priceMemory: 2 })).toBe(2 * small.memoryGiB);
    expect(costOf({ priceDisk: 1 })).toBe(small.diskGiB);
    expect(costOf({ priceBucket: 1 })).toBe(small.bucketGiB);
    expect(costOf({ priceWrites: 1000 }) / (small.writesPerMonth / 1000)).toBeCloseTo(1, 2);
    expect(costOf({ priceReads: 1000 }) / (small.readsPerMonth / 1000)).toBeCloseTo(1, 2);
  });
});
