import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { resolveExport, resolveImport } from '../../../src/cli/service-client.ts';
import type { CommandContext } from '../../../src/cli/command.ts';
import { changeProfiles, profilesPath, readProfiles, type Profiles } from '../../../src/client/profiles.ts';
import { testFolder } from '../../helpers/folder.ts';

const silent = (): void => undefined;

function context(environment: Readonly<Record<string, string>>): CommandContext {
  const never = new AbortController().signal;
  return {
    environment,
    entry: '',
    printResult: silent,
    print: silent,
    printMessage: silent,
    stop: never,
    force: never,
  };
}

const shop = {
  importUrl: 'http://in.example',
  exportUrl: 'http://out.example',
  idApp: 7,
  token: 't',
  idUser: '3',
  secret: 's',
};

const addShop =
  (name: string) =>
  (found: Profiles): Profiles => ({ ...found, profiles: { ...found.profiles, [name]: shop } });

async function withShop(): Promise<Record<string, string>> {
  const environment = { XDG_CONFIG_HOME: testFolder() };
  const game = { importUrl: 'http://game.example', idApp: 9, token: 'g' };
  await changeProfiles(profilesPath(environment), () => ({ current: 'shop', profiles: { shop, game } }));
  return environment;
}

describe('profiles', () => {
  it('An option overrides the environment, which overrides the named or current profile', async () => {
    const environment = await withShop();
    const { importUrl: url, idApp, token } = shop;
    expect(await resolveImport({}, context(environment))).toEqual({ url, idApp, token });
    expect(await resolveImport({ profile: 'game' }, context(environment))).toMatchObject({ idApp: 9, token: 'g' });
    const named = { ...environment, TRIBUTARY_PROFILE: 'game', TRIBUTARY_APP: '8', TRIBUTARY_TOKEN: 'e' };
    expect(await resolveImport({ url: 'https://other/' }, context(named))).toEqual({
      url: 'https://other',
      idApp: 8,
      token: 'e',
    });
    expect(await resolveExport({ user: 4 }, context(environment))).toMatchObject({ idUser: '4', secret: 's' });
    await expect(resolveExport({}, context(named))).rejects.toThrow(/URL of the export area is not set/);
    await expect(resolveImport({ profile: 'none' }, context(environment))).rejects.toThrow(
      /profile none does not exist/,
    );
    await expect(resolveImport({ url: 'ftp://x' }, context(environment))).rejects.toThrow(/must be a URL/);
  });

  it('The file of the profiles is private to its owner, and one that others may read is rejected', async () => {
    const environment = await withShop();
    const file = profilesPath(environment);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    chmodSync(file, 0o640);
    await expect(readProfiles(file)).rejects.toThrow(/accessible to other users/);
    await expect(resolveImport({}, context(environment))).rejects.toThrow(/accessible to other users/);
    await expect(changeProfiles(file, (found) => found)).rejects.toThrow(/accessible to other users/);
  });

  it('A file without valid profiles is rejected and stays unchanged', async () => {
    const file = profilesPath({ HOME: testFolder() });
    mkdirSync(path.dirname(file), { recursive: true });
    for (const text of [
      '',
      '[]',
      '{"profiles":{"a b":{}}}',
      '{"profiles":{"a":{"idApp":"7"}}}',
      '{"profiles":{"a":{"importUrl":"x"}}}',
    ]) {
      writeFileSync(file, text, { mode: 0o600 });
      await expect(
        changeProfiles(file, () => ({ profiles: {} })),
        text,
      ).rejects.toThrow(/cannot read the profiles in/);
      expect(readFileSync(file, 'utf8')).toBe(text);
    }
  });

  it('Concurrent changes are made one after the other', async () => {
    const file = profilesPath({ HOME: testFolder() });
    await Promise.all(['a', 'b', 'c', 'd'].map((name) => changeProfiles(file, addShop(name))));
    expect(Object.keys((await readProfiles(file)).profiles).toSorted()).toEqual(['a', 'b', 'c', 'd']);
  });
});
