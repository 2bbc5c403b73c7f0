import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { CommandContext } from '../../../src/cli/command.ts';
import { verifyCommand } from '../../../src/cli/verify.ts';
import { renderManifest } from '../../../src/reports/manifest.ts';
import { reportJob } from '../../helpers/report-job.ts';
import { publicKeyHex } from '../../../src/runtime/encrypted-text.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const { privateKey } = generateKeyPairSync('ed25519');
const key = publicKeyHex(privateKey);

/** Runs `tributary verify`; returns its exit code and its output. */
async function verify(...words: string[]): Promise<{ readonly code: number; readonly answer: unknown }> {
  const answers: unknown[] = [];
  const context = {
    environment: {},
    printResult: (value: unknown) => void answers.push(value),
    printMessage: () => undefined,
  } as unknown as CommandContext;
  return { code: await runCommandHere(verifyCommand, words, context), answer: answers[0] };
}

/** Writes the parts of an export, and its manifest; returns the paths of all. */
function writeExport(parts: readonly string[], request: object = {}): [manifest: string, ...parts: string[]] {
  const folder = testFolder();
  const files = parts.map((text, index) => ({
    name: `1.${index + 1}.csv`,
    rows: 1,
    bytes: Buffer.byteLength(text),
    sha256: createHash('sha256').update(text).digest('hex'),
  }));
  const job = reportJob({
    request: { selectors: ['eventName'], ...request },
    files,
    basis: { version: 1, nextSinceVersion: '1', keptUntilSeconds: 1 },
  });
  const manifest = path.join(folder, '1.manifest.json');
  writeFileSync(manifest, renderManifest(job, privateKey) ?? '');
  return [
    manifest,
    ...files.map(({ name }, index) => {
      writeFileSync(path.join(folder, name), parts[index] ?? '');
      return path.join(folder, name);
    }),
  ];
}

test('A manifest with changed bytes is rejected, even if a lenient text decoder reads the same text', async () => {
  const [manifest, part = ''] = writeExport(['a'], { eventName: ['\u{fffd}'] });
  expect(await verify(part, manifest, '--key', key)).toMatchObject({ code: 0, answer: { ok: true, trusted: true } });
  const bytes = readFileSync(manifest);
  for (const other of [
    Buffer.from(bytes.toString('latin1').replace('\xef\xbf\xbd', '\xff'), 'latin1'),
    Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes]),
  ]) {
    writeFileSync(manifest, other);
    await expect(verify(part, manifest, '--key', key)).rejects.toMatchObject({ code: 'manifest_invalid' });
  }
});

test('Of identical parts, those that are not given are reported as missing', async () => {
  const [manifest, one = '', two = '', other = ''] = writeExport(['same', 'same', 'other']);
  const missing = async (...files: string[]): Promise<unknown> =>
    ((await verify(...files, manifest)).answer as { readonly missing: unknown }).missing;
  const codeOf = async (...words: string[]): Promise<number> => (await verify(...words, manifest, '--key', key)).code;
  expect(await codeOf(one, two, other)).toBe(0);
  expect(await missing(one, two, other)).toEqual([]);
  expect(await missing(two, other)).toEqual(['1.1.csv']);
  expect(await missing(one, one, other)).toEqual(['1.2.csv']);
  const renamed = path.join(path.dirname(one), 'renamed.csv');
  writeFileSync(renamed, 'same');
  expect(await missing(renamed, one)).toEqual(['1.3.csv']);
  expect(await missing(renamed)).toEqual(['1.2.csv', '1.3.csv']);
  // A third file of two identical parts would count their rows again.
  expect(await codeOf(one, two, other, renamed)).toBe(1);
});

test('A missing part needs --partial, an untrusted key needs --any-key, and a part is given once', async () => {
  const [manifest, one = '', two = ''] = writeExport(['a', 'b']);
  const codeOf = async (...words: string[]): Promise<number> => {
    const { code, answer } = await verify(...words);
    expect(answer).toMatchObject({ ok: code === 0 });
    return code;
  };
  const copy = path.join(path.dirname(one), 'copy.csv');
  writeFileSync(copy, 'a');
  expect(await codeOf(one, two, manifest, '--key', key)).toBe(0);
  expect(await codeOf(one, two, manifest, '--any-key')).toBe(0);
  expect(await codeOf(one, two, manifest)).toBe(1);
  expect(await codeOf(one, manifest, '--key', key)).toBe(1);
  expect(await codeOf(one, manifest, '--key', key, '--partial')).toBe(0);
  expect(await codeOf(one, manifest, '--partial')).toBe(1);
  for (const again of [one, path.join(path.dirname(one), '.', path.basename(one)), copy]) {
    expect(await codeOf(one, again, two, manifest, '--key', key)).toBe(1);
    expect(await codeOf(one, again, manifest, '--key', key, '--partial')).toBe(1);
  }
  await expect(verify(one, two, manifest, '--key', key, '--any-key')).rejects.toMatchObject({ code: 'usage' });
});

test('A file that is not a manifest is reported, regardless of its size, and an archive must be unpacked', async () => {
  const [manifest, part = ''] = writeExport(['a']);
  const folder = path.dirname(manifest);
  const huge = path.join(folder, 'huge.csv');
  writeFileSync(huge, '');
  truncateSync(huge, 3 * 1024 ** 3);
  const binary = path.join(folder, 'a.parquet');
  writeFileSync(binary, Buffer.from([0x50, 0x41, 0x52, 0x31, 0xff, 0]));
  for (const last of [part, huge, binary])
    await expect(verify(manifest, last)).rejects.toMatchObject({
      code: 'manifest_invalid',
      hint: expect.stringContaining('the manifest last') as unknown,
    });
  for (const alone of [huge, binary])
    await expect(verify(alone)).rejects.toMatchObject({ code: 'receipt_invalid', message: 'the receipt is not JSON' });
  const archive = path.join(folder, '1.zip');
  writeFileSync(archive, 'PK');
  expect(await verify(archive, manifest)).toMatchObject({
    code: 1,
    answer: { files: [{ ok: false, why: expect.stringContaining('unpack it') as unknown }] },
  });
});

test('A manifest of another signer with missing members is rejected', async () => {
  const [manifest, part = ''] = writeExport(['a']);
  const {
    signature: _,
    data: _data,
    ...rest
  } = JSON.parse(readFileSync(manifest).toString()) as Record<string, unknown>;
  const signature = sign(undefined, Buffer.from(JSON.stringify(rest)), privateKey).toString('hex');
  writeFileSync(manifest, `${JSON.stringify({ ...rest, signature }, undefined, 2)}\n`);
  await expect(verify(part, manifest)).rejects.toMatchObject({ code: 'manifest_invalid' });
});
