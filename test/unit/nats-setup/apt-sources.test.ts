import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseDeb822Sources, parseOneLineSources, readAptMirrors } from '../../../src/nats-setup/apt-fetch.ts';
import { testFolder } from '../../helpers/folder.ts';

describe('the machine’s package sources', () => {
  it('The reader of package sources parses deb822 stanzas, with comments inside and a key in place', () => {
    const sources = parseDeb822Sources(
      [
        'Types: deb deb-src',
        '# a comment inside a stanza',
        'URIs: http://mirror.test/debian https://second.test/debian',
        'Suites: bookworm bookworm-updates',
        'Components: main contrib',
        'Signed-By:',
        ' -----BEGIN PGP PUBLIC KEY BLOCK-----',
        ' .',
        ' abc=',
        '',
        'Types: deb-src',
        'URIs: http://sources-only.test/debian',
        'Suites: bookworm',
        'Components: main',
        '',
        'Enabled: no',
        'Types: deb',
        'URIs: http://disabled.test/debian',
        'Suites: bookworm',
        'Components: main',
      ].join('\n'),
    );
    expect(sources).toEqual([
      {
        uris: ['http://mirror.test/debian', 'https://second.test/debian'],
        suites: ['bookworm', 'bookworm-updates'],
        components: ['main', 'contrib'],
        options: { 'Signed-By': '\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=' },
      },
    ]);
  });

  it('The reader of package sources parses one-line entries, with and without options', () => {
    const sources = parseOneLineSources(
      [
        '# deb http://commented.test/debian bookworm main',
        'deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.test/debian bookworm main contrib # a comment',
        'deb-src http://mirror.test/debian bookworm main',
        'deb [ trusted=yes ] file:/srv/debian bookworm main',
        'deb cdrom:[Debian]/ bookworm main',
      ].join('\n'),
    );
    expect(sources.slice(0, 2)).toEqual([
      {
        uris: ['http://mirror.test/debian'],
        suites: ['bookworm'],
        components: ['main', 'contrib'],
        options: { 'Signed-By': '/usr/share/keyrings/debian-archive-keyring.gpg' },
      },
      { uris: ['file:/srv/debian'], suites: ['bookworm'], components: ['main'], options: { Trusted: 'yes' } },
    ]);
  });

  it('The reader of package sources names each whole archive once, and leaves out security archives and those without main', async () => {
    const etcApt = testFolder();
    await mkdir(path.join(etcApt, 'sources.list.d'));
    await writeFile(
      path.join(etcApt, 'sources.list'),
      'deb http://mirror.test/debian bookworm main\ndeb http://mirror.test/debian bookworm-updates main\n',
    );
    await writeFile(
      path.join(etcApt, 'sources.list.d', 'more.sources'),
      [
        'Types: deb\nURIs: http://mirror.test/debian-security\nSuites: bookworm-security\nComponents: main\n',
        'Types: deb\nURIs: http://vendor.test/apt\nSuites: stable\nComponents: vendor\n',
        'Types: deb\nURIs: http://second.test/debian\nSuites: bookworm\nComponents: main\nSigned-By: /k.gpg\n',
      ].join('\n'),
    );
    await writeFile(
      path.join(etcApt, 'sources.list.d', 'old.list.disabled'),
      'deb http://disabled.test/debian bookworm main\n',
    );
    expect(await readAptMirrors(etcApt)).toEqual([
      { uri: 'http://mirror.test/debian', options: {} },
      { uri: 'http://second.test/debian', options: { 'Signed-By': '/k.gpg' } },
    ]);
  });

  it('The reader of package sources finds no archive on a machine without sources', async () => {
    expect(await readAptMirrors(path.join(testFolder(), 'nothing'))).toEqual([]);
  });
});
