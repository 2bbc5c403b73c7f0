import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  createExportArea,
  waitForExport,
  type ExportArea,
  type ExportReport,
} from '../../../src/client/export-area.ts';
import { fetchExport, getManifestKey } from '../../../src/client/export-output.ts';
import { createHttpClient } from '../../../src/client/http-client.ts';
import { parseManifest } from '../../../src/reports/manifest.ts';
import { waitUntilWorkedOff } from '../../helpers/accounting.ts';
import { eventLines, importHere } from '../../helpers/client-import.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import type { Credentials } from '../../helpers/export-area.ts';
import { addTestApp, addTestUser } from '../../helpers/service-access.ts';
import { startTestService, type TestService } from '../../helpers/service.ts';

const folder = temporaryFolder();
const events = 3000;
const http = createHttpClient();
let service: TestService;
let user: Credentials;
let area: ExportArea;
let report: ExportReport;

const never = new AbortController().signal;
const silent = (): void => undefined;
const selectors = 'eventId,customUserId,params.value';

const areaOf = (secret = user.secret): ExportArea =>
  createExportArea(http, { url: service.api, idUser: user.idUser, secret }, { signal: never, onWait: silent });

async function order(more: readonly (readonly [string, string])[] = []): Promise<ExportReport> {
  const parameters = [['event', 'customEvents'], ['selectors', selectors], ['sinceVersion', '0'], ...more] as const;
  const { idRawExport } = await area.call('/api/raw/v1/export/create.json', parameters, true);
  return waitForExport(area, String(idRawExport), { signal: never, onProgress: silent });
}

/** Downloads as the command does; returns the bytes that were received or found. */
async function fetchHere(
  wanted: ExportReport,
  output: string,
  { signal = never, onBytes = silent }: { signal?: AbortSignal; onBytes?: (bytes: number) => void } = {},
): Promise<{ readonly files: readonly string[]; readonly rows: number }> {
  const key = await getManifestKey(service.api, { http });
  const renew = async () => (await area.get(wanted.id)).files ?? [];
  return fetchExport(wanted, output, (text) => parseManifest(text, key).files, {
    http,
    signal,
    renew,
    onBytes,
    onWait: silent,
  });
}

/** The user ids of a CSV, whose first line must be its only header. */
function usersOf(csv: string): Set<string> {
  const [header, ...rows] = csv.trimEnd().split('\n');
  expect(header).toBe(selectors);
  expect(rows.filter((row) => row === header)).toEqual([]);
  return new Set(rows.map((row) => row.split(',')[1] ?? ''));
}

beforeAll(async () => {
  const dataDir = path.join(folder, 'data');
  const token = await addTestApp(dataDir);
  user = await addTestUser(dataDir);
  const settings = {
    TRIBUTARY_SINGLE_FILE_MAX_BYTES: '0',
    TRIBUTARY_PART_MAX_BYTES: '65536',
    TRIBUTARY_QUOTA_USER: 'off',
    TRIBUTARY_QUOTA_IP: 'off',
  };
  service = await startTestService({ dataDir, settings });
  const file = path.join(folder, 'events.ndjson');
  writeFileSync(file, `${eventLines(events).join('\n')}\n`);
  await importHere({ service, token }, file);
  await waitUntilWorkedOff(service);
  area = areaOf();
  report = await order();
}, 120_000);
afterAll(async () => {
  http.close();
  await service.destroy();
});

describe('an export that is downloaded', () => {
  it('An export of several parts becomes one file with one header, compressed by its name, and leaves no other file', async () => {
    expect(report.files?.length).toBeGreaterThan(2);
    const place = path.join(folder, 'one');
    mkdirSync(place);
    const csv = path.join(place, 'out.csv');
    expect(await fetchHere(report, csv)).toMatchObject({ files: [csv], rows: events });
    expect(usersOf(readFileSync(csv, 'utf8')).size).toBe(events);
    const packed = path.join(place, 'out.csv.gz');
    await fetchHere(report, packed);
    expect(gunzipSync(readFileSync(packed)).equals(readFileSync(csv))).toBe(true);
    expect(readdirSync(place).toSorted()).toEqual(['out.csv', 'out.csv.gz']);
  });

  it('An export is downloaded to a folder unchanged, with its manifest', async () => {
    const place = path.join(folder, 'parts/');
    const { files } = await fetchHere(report, place);
    expect(readdirSync(place).toSorted()).toEqual(
      [...(report.files ?? []).map(({ name }) => name), `export-${report.id}.manifest.json`].toSorted(),
    );
    for (const [index, file] of files.entries())
      expect(createHash('sha256').update(readFileSync(file)).digest('hex')).toBe(report.files?.[index]?.sha256);
  });

  it('An interrupted download resumes with the missing bytes, and downloads damaged parts again', async () => {
    const output = path.join(folder, 'resumed.csv');
    const stop = new AbortController();
    let came = 0;
    const onBytes = (bytes: number): void => {
      came += bytes;
      if (came > 0) stop.abort();
    };
    await expect(fetchHere(report, output, { signal: stop.signal, onBytes })).rejects.toThrow(/interrupted/);
    expect(existsSync(output)).toBe(false);
    const work = `${output}.export-${report.id}`;
    const [first] = report.files ?? [];
    const part = path.join(work, first?.name ?? '');
    // Half of the first part, with a changed byte; then half of the second part, unchanged.
    const bytes = readFileSync(part).subarray(0, Math.floor((first?.bytes ?? 0) / 2));
    bytes[0] = 0;
    writeFileSync(part, bytes);
    const steps: number[] = [];
    await fetchHere(report, output, { onBytes: (step) => steps.push(step) });
    expect(steps[0]).toBe(bytes.length);
    expect(steps).toContain(-(first?.bytes ?? 0));
    expect(usersOf(readFileSync(output, 'utf8')).size).toBe(events);

    const again = path.join(folder, 'half.csv');
    const half = path.join(`${again}.export-${report.id}`, first?.name ?? '');
    mkdirSync(path.dirname(half), { recursive: true });
    writeFileSync(half, readFileSync(path.join(folder, 'parts', first?.name ?? '')));
    truncateSync(half, 1000);
    const more: number[] = [];
    await fetchHere(report, again, { onBytes: (step) => more.push(step) });
    expect(more[0]).toBe(1000);
    expect(more.every((step) => step >= 0)).toBe(true);
    expect(usersOf(readFileSync(again, 'utf8')).size).toBe(events);
  });

  it('An expired link is renewed, and an expired export is reported', async () => {
    const ended = (report.files ?? []).map((file) => ({
      ...file,
      link: file.link.replace(/.$/, (end) => (end === '0' ? '1' : '0')),
    }));
    const output = path.join(folder, 'renewed.csv');
    await fetchHere({ ...report, files: ended }, output);
    expect(usersOf(readFileSync(output, 'utf8')).size).toBe(events);
    await expect(area.get('4711')).rejects.toThrow(/rejected the request/);
    await expect(areaOf('wrong').get(report.id)).rejects.toThrow(/Access denied/);
  });

  it('A file that is not in the manifest is rejected', async () => {
    const [first, ...others] = report.files ?? [];
    const files = [{ ...first!, sha256: '0'.repeat(64) }, ...others];
    await expect(fetchHere({ ...report, files }, path.join(folder, 'odd.csv'))).rejects.toThrow(
      /does not match the manifest/,
    );
    expect(existsSync(path.join(folder, 'odd.csv'))).toBe(false);
  });

  it('Files whose format differs from the output name are rejected before the download', async () => {
    for (const name of ['x.parquet', 'x.jsonl'])
      await expect(fetchHere(report, path.join(folder, name))).rejects.toThrow(/cannot convert/);
  });

  it('Parquet and JSON lines keep their format', async () => {
    const parquet = path.join(folder, 'out.parquet');
    await fetchHere(await order([['format', 'parquet']]), parquet);
    expect(readFileSync(parquet).subarray(0, 4).toString()).toBe('PAR1');
    const lines = path.join(folder, 'out.jsonl');
    await fetchHere(await order([['format', 'jsonl']]), lines);
    expect(readFileSync(lines, 'utf8').trimEnd().split('\n').length).toBe(events);
  });
});
