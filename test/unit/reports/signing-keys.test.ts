import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  openSigningKeys,
  rotateSigningKey,
  signingKeysPath,
  type SigningKeys,
} from '../../../src/reports/signed-links.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const logger = createLogger('silent');
const clockAt = (nowMs: number) => ({ nowMs: () => nowMs });

async function open(folder: string, nowMs = 1000): Promise<SigningKeys> {
  const keys = await openSigningKeys(folder, clockAt(nowMs), logger);
  onTestFinished(() => keys.close());
  return keys;
}

describe('the link keys', () => {
  it('The link keys are created on first use, readable by the owner only, and stay the same', async () => {
    const folder = testFolder();
    const first = await open(folder);
    const second = await open(folder);
    expect(second.current()).toEqual(first.current());
    expect(statSync(signingKeysPath(folder)).mode & 0o777).toBe(0o600);
  });

  it('The link keys follow a rotation by another process, and still verify with the retired key', async () => {
    const folder = testFolder();
    const keys = await open(folder);
    const before = keys.current();
    const { kid, retired } = await rotateSigningKey(folder, clockAt(2000));
    expect(retired).toEqual([before.kid]);
    await waitFor('the new key is active', () => keys.current().kid === kid);
    expect(keys.find(before.kid)?.secret).toEqual(before.secret);
  });

  it('The link keys drop a retired key after all of its links have expired', async () => {
    const folder = testFolder();
    const first = (await open(folder)).current().kid;
    const second = (await rotateSigningKey(folder, clockAt(2000))).kid;
    expect((await rotateSigningKey(folder, clockAt(604_000_000))).retired).toEqual([first, second]);
    expect((await rotateSigningKey(folder, clockAt(604_800_000 + 2000))).retired).not.toContain(first);
  });

  it('The link keys rotate once per caller when many callers rotate at once', async () => {
    const folder = testFolder();
    await open(folder);
    const rotations = await Promise.all(Array.from({ length: 5 }, () => rotateSigningKey(folder, clockAt(2000))));
    const last = await rotateSigningKey(folder, clockAt(3000));
    for (const { kid } of rotations) expect(last.retired).toContain(kid);
  });

  it('The link keys stay active when the file becomes unreadable; a later start has no keys, which is a problem until it is restored', async () => {
    const folder = testFolder();
    const keys = await open(folder);
    const { kid } = keys.current();
    const whole = readFileSync(signingKeysPath(folder));
    writeFileSync(signingKeysPath(folder), '{"keys":[{"kid":"short"}]}');
    const later = await open(folder);
    expect([later.isReadable(), later.problems()]).toMatchObject([false, [{ code: 'link_keys_unreadable' }]]);
    expect(() => later.current()).toThrow('cannot read');
    expect(keys.current().kid).toBe(kid);
    writeFileSync(signingKeysPath(folder), whole);
    await waitFor('the keys are read', () => later.isReadable());
    expect([later.current().kid, later.problems()]).toEqual([kid, []]);
  });
});
