import { EventEmitter, once } from 'node:events';
import path from 'node:path';
import process from 'node:process';
import { expect, test } from 'vitest';
import { registerDiskGauges, registerServiceGauges } from '../../../src/ops/service-gauges.ts';
import { problemCodes, type Problem } from '../../../src/runtime/problems/problem.ts';
import { createMetrics, renderMetrics, type Metrics } from '../../../src/runtime/metrics.ts';
import { testFolder } from '../../helpers/folder.ts';

const problem = (code: Problem['code'], subject: string): Problem => ({ code, subject, message: 'w', action: 't' });

async function read(metrics: Metrics): Promise<ReadonlyMap<string, string>> {
  const { body } = await renderMetrics([await metrics.snapshot()]);
  return new Map([...body.matchAll(/^tributary_(\S+) (\S+)$/gm)].map(([, name = '', value = '']) => [name, value]));
}

test('The free space on the disk of each existing folder is exported', async () => {
  const metrics = createMetrics();
  const folder = testFolder();
  registerDiskGauges(metrics, { folders: { data: folder, lake: path.join(folder, 'none') }, reserveBytes: 42 });
  const shown = await read(metrics);
  const [free, size] = ['free', 'size'].map((what) => Number(shown.get(`disk_${what}_bytes{folder="data"}`)));
  expect(free).toBeGreaterThan(0);
  expect(size).toBeGreaterThanOrEqual(free ?? 0);
  expect([...shown.keys()].filter((name) => name.includes('lake'))).toEqual([]);
  expect(shown.get('disk_reserve_bytes')).toBe('42');
});

const freeOf = (shown: ReadonlyMap<string, string>) => [...shown.keys()].filter((name) => name.startsWith('disk_free'));

test('A disk that hangs is read once, regardless of scrapes, and is omitted until it responds', async () => {
  const metrics = createMetrics();
  const asked: string[] = [];
  const moved = new EventEmitter();
  const still = once(moved, 'moved');
  const room = { freeBytes: 1, sizeBytes: 2 };
  const readRoom = async (folder: string) => {
    asked.push(folder);
    if (folder === 'b') await still;
    return room;
  };
  registerDiskGauges(metrics, { folders: { one: 'a', two: 'b', three: 'c' }, reserveBytes: 0 }, readRoom);
  for (const shown of await Promise.all([read(metrics), read(metrics)]))
    expect(freeOf(shown)).toEqual(['disk_free_bytes{folder="one"}']);
  expect(asked).toEqual(['a', 'b']);
  moved.emit('moved');
  await still;
  const back = await read(metrics);
  expect(freeOf(back)).toHaveLength(3);
});

test('Problems and warnings are counted by code, starting at zero, until they are resolved', async () => {
  const metrics = createMetrics();
  const figures = { problems: [] as Problem[], warnings: [] as Problem[], processes: [] };
  registerServiceGauges(metrics, () => figures);
  const names = [...(await read(metrics)).keys()].filter((name) => name.startsWith('service_problems_by_code'));
  expect(names.filter((name) => !name.includes('deprecated'))).toHaveLength(problemCodes.length);
  figures.problems = [problem('process_down', 'compact'), problem('process_down', 'export')];
  figures.warnings = [problem('events_failed', '')];
  const shown = await read(metrics);
  expect(shown.get('service_problems')).toBe('2');
  expect(shown.get('service_problems_by_code{code="process_down"}')).toBe('2');
  expect(shown.get('service_warnings_by_code{code="events_failed"}')).toBe('1');
  figures.problems = [];
  expect((await read(metrics)).get('service_problems_by_code{code="process_down"}')).toBe('0');
});

test('The state and the number of restarts of a process are exported', async () => {
  const metrics = createMetrics();
  const compact = { name: 'compact', pid: 7, lastError: undefined };
  let processes = [{ ...compact, state: 'running' as 'running' | 'waiting', restarts: 1 }];
  registerServiceGauges(metrics, () => ({ problems: [], warnings: [], processes }));
  await read(metrics);
  processes = [{ ...compact, state: 'waiting', restarts: 3 }];
  const shown = await read(metrics);
  expect(shown.get('service_process_running{process="compact"}')).toBe('0');
  expect(shown.get('service_process_restarts_total{process="compact"}')).toBe('3');
  const startedMs = 1000 * Number(shown.get('service_start_time_seconds'));
  expect(Math.abs(Date.now() - process.uptime() * 1000 - startedMs)).toBeLessThan(60_000);
});
