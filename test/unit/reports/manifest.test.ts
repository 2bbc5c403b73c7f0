import { createPublicKey, generateKeyPairSync, verify, type KeyObject } from 'node:crypto';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, onTestFinished, test, vi } from 'vitest';
import { manifestSchema } from '../../../src/export/api/openapi-schemas.ts';
import { openManifestKey, manifestKeyPath, parseManifest, renderManifest } from '../../../src/reports/manifest.ts';
import { publicKeyHex } from '../../../src/runtime/encrypted-text.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import type { ReportJob } from '../../../src/reports/reports.ts';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { testFolder } from '../../helpers/folder.ts';

const logger = createLogger('silent');
const sha256 = 'ab'.repeat(32);
const job: ReportJob = {
  id: 7,
  idUser: '1',
  idAccount: 1,
  createdMs: 1_700_000_000_000,
  state: 'success',
  attempts: 1,
  event: 'customEvents',
  nonce: '0'.repeat(32),
  request: { event: 'customEvents', selectors: ['eventId', 'tsEvent'], timezone: 'UTC' },
  finishedMs: 1_700_000_001_000,
  expiresSeconds: 1_700_086_401,
  files: [{ name: '7.csv', rows: 3, bytes: 99, sha256 }],
  basis: {
    version: 12,
    nextSinceVersion: '12-0123abcd',
    keptUntilSeconds: 1_700_086_400,
    head: sha256,
    watermarkMs: 1_700_000_000_500,
  },
};

/** Opens the key of a folder. */
async function openKey(folder = testFolder(), log = logger, isInUse = false): Promise<KeyObject> {
  const opened = await openManifestKey(folder, log, isInUse);
  onTestFinished(() => opened.close());
  const key = opened.current();
  if (key === undefined) throw new Error('the key is missing');
  return key;
}

test('A manifest describes the request, the data and the files, with the same bytes each time', async () => {
  const key = await openKey();
  const text = renderManifest(job, key) ?? '';
  expect(renderManifest(job, key)).toBe(text);
  expect(parseManifest(text)).toEqual({
    manifestVersion: 1,
    idReportFile: '7',
    event: 'customEvents',
    request: job.request,
    createdAt: '2023-11-14T22:13:20.000Z',
    finishedAt: '2023-11-14T22:13:21.000Z',
    data: job.basis,
    columns: ['eventId', 'tsEvent'],
    rows: 3,
    files: job.files,
    key: publicKeyHex(key),
  });
  const { basis: _, ...earlier } = job;
  expect(renderManifest(earlier, key)).toBeUndefined();
});

test('A manifest has the members of the API reference, and is verified by the documented steps', async () => {
  const key = await openKey();
  const request = { ...(job.request as object), eventName: ['Ünï "\u2028" 名'] };
  const { signature, ...signed } = JSON.parse(renderManifest({ ...job, request }, key) ?? '') as Record<
    string,
    unknown
  >;
  const x = Buffer.from(String(signed['key']), 'hex').toString('base64url');
  const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  const bytes = Buffer.from(JSON.stringify(signed));
  expect(verify(undefined, bytes, publicKey, Buffer.from(String(signature), 'hex'))).toBe(true);
  const { basis, ...rest } = job;
  const { head: _head, watermarkMs: _watermarkMs, ...least } = basis!;
  for (const one of [job, { ...rest, basis: least }]) {
    const manifest = JSON.parse(renderManifest(one, key) ?? '') as object;
    const isManifest = new Ajv2020({ strict: false, validateFormats: false }).compile(manifestSchema);
    expect([isManifest(manifest), isManifest.errors]).toEqual([true, null]);
    expect(Object.keys(manifest)).toEqual(Object.keys(manifestSchema['properties'] as object));
  }
});

test('A manifest with any changed bit, and one of another key, is refused', async () => {
  const key = await openKey();
  const text = renderManifest(job, key) ?? '';
  const bytes = Buffer.from(text);
  const accepted: string[] = [];
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    try {
      parseManifest(changed.toString('utf8'));
      accepted.push(`bit ${bit}`);
    } catch {
      // Rejected as required.
    }
  }
  expect(accepted).toEqual([]);
  expect(() => parseManifest(text, publicKeyHex(key))).not.toThrow();
  const { privateKey: other } = generateKeyPairSync('ed25519');
  expect(() => parseManifest(text, publicKeyHex(other))).toThrow('was signed by another key');
  expect(() => parseManifest(`${text} `)).toThrow('was reformatted');
  expect(() => parseManifest(text.replace('"rows": 3', '"rows": 3, "rows": 3'))).toThrow('was reformatted');
});

test('The first process creates the key of manifests once, and a damaged key is a problem until it is restored', async () => {
  const folder = testFolder();
  const keys = await Promise.all([1, 2, 3].map(() => openKey(folder)));
  expect(new Set(keys.map(publicKeyHex)).size).toBe(1);
  expect(publicKeyHex(await openKey(folder))).toBe(publicKeyHex(keys[0]!));
  const whole = readFileSync(manifestKeyPath(folder));
  writeFileSync(manifestKeyPath(folder), '{}');
  const opened = await openManifestKey(folder, logger);
  onTestFinished(() => opened.close());
  expect(opened.current()).toBeUndefined();
  expect(opened.problems()).toMatchObject([{ code: 'manifest_key_unreadable' }]);
  writeFileSync(manifestKeyPath(folder), whole);
  await vi.waitFor(() => expect(opened.problems()).toEqual([]), { timeout: 5000 });
  expect(publicKeyHex(opened.current()!)).toBe(publicKeyHex(keys[0]!));
});

test('A new key is logged if manifests were signed before, and a first key is not', async () => {
  const folder = testFolder();
  const warnings: unknown[] = [];
  const loud = { ...logger, warn: (fields: unknown) => void warnings.push(fields) } as unknown as typeof logger;
  const first = publicKeyHex(await openKey(folder, loud));
  expect(publicKeyHex(await openKey(folder, loud, true))).toBe(first);
  expect(warnings).toEqual([]);
  rmSync(manifestKeyPath(folder));
  expect(publicKeyHex(await openKey(folder, loud, true))).not.toBe(first);
  expect(warnings).toEqual([{ file: manifestKeyPath(folder) }]);
});
