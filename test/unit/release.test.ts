import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { appendFileSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { testFolder } from '../helpers/folder.ts';

/** The steps of `make release` in a copy of the files that they read, without the builds. */

const files = [
  'package.json',
  'package-lock.json',
  'CHANGELOG.md',
  'Dockerfile',
  'deploy/kubernetes/one-node/kustomization.yaml',
  'deploy/kubernetes/cluster/kustomization.yaml',
  'docs/install.md',
  'docs/keep.md',
  'src/export/api/openapi-examples.ts',
  'src/ingest/openapi-examples.ts',
  '.build/deb.mjs',
];
const { version: present } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')) as {
  version: string;
};
const next = '97.1.0';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Creates a repository with the files, and a changelog with one planned change. */
function createCheckout() {
  const root = testFolder();
  for (const file of files)
    if (existsSync(path.join(packageRoot, file))) cpSync(path.join(packageRoot, file), path.join(root, file));
  writeFileSync(path.join(root, '.gitignore'), 'release/\n');
  writeFileSync(
    path.join(root, 'CHANGELOG.md'),
    `# Changelog\n\n## ${next} (unreleased)\n\n### Added\n\n- A change.\n\n## ${present} (2026-01-01)\n\n- An old one.\n`,
  );
  const git = (...words: readonly string[]): string =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...words], {
      cwd: root,
      encoding: 'utf8',
    }).trim();
  git('init', '--quiet');
  git('add', '--all');
  git('commit', '--quiet', '--message', 'First');
  const environment = {
    ...process.env,
    ...Object.fromEntries(
      ['AUTHOR', 'COMMITTER'].flatMap((who) => [
        [`GIT_${who}_NAME`, 't'],
        [`GIT_${who}_EMAIL`, 't@example.com'],
      ]),
    ),
  };
  return {
    git,
    place: (file: string): string => path.join(root, file),
    read: (file: string): string => readFileSync(path.join(root, file), 'utf8'),
    /** Runs a step; returns its error, or nothing. */
    run: (...words: readonly string[]): string =>
      spawnSync(process.execPath, [path.join(packageRoot, '.build/release.mjs'), ...words], {
        cwd: root,
        encoding: 'utf8',
        env: environment,
      }).stderr,
  };
}

describe('the preparation of a release', () => {
  it('The preparation sets the version wherever it stands, dates the changelog and commits both', () => {
    const { git, read, run } = createCheckout();
    expect(run('prepare', next)).toBe('');
    expect(git('status', '--porcelain')).toBe('');
    expect(git('log', '-1', '--format=%s')).toBe(`Release ${next}`);
    expect(JSON.parse(read('package.json'))).toMatchObject({ version: next });
    expect(JSON.parse(read('package-lock.json'))).toMatchObject({ version: next, packages: { '': { version: next } } });
    expect(git('show', '--numstat', '--format=', 'HEAD', '--', 'package-lock.json')).toMatch(/^2\t2\t/);
    expect(read('CHANGELOG.md')).toMatch(new RegExp(`^## ${next} \\(\\d{4}-\\d\\d-\\d\\d\\)$`, 'm'));
    expect(read('docs/install.md')).toContain(`VERSION=${next} `);
    expect(read('docs/install.md')).not.toMatch(new RegExp(`tributary-${present}`));
    expect(read('docs/keep.md')).toContain(`/opt/tributary-${next} ./tributary-${next}.tgz`);
    expect(read('docs/keep.md')).toContain(`ln -sfn tributary-${present} /opt/tributary`);
    expect(read('src/ingest/openapi-examples.ts')).toContain(`version: '${next}'`);
  });

  it.each([
    ['text that is not a version', 'next', /is not a version/],
    ['a lower version', '0.0.1', /not above/],
    ['the present version', present, /not above/],
    ['another version than the changelog plans', '98.0.0', /plans 97\.1\.0/],
  ])('The preparation refuses %s', (_what, version, message) => {
    const { git, run } = createCheckout();
    expect(run('prepare', version)).toMatch(message);
    expect([git('status', '--porcelain'), git('log', '-1', '--format=%s')]).toEqual(['', 'First']);
  });

  it('The preparation refuses a checkout with changes, and keeps them', () => {
    const { git, place, run } = createCheckout();
    appendFileSync(place('docs/install.md'), 'a change\n');
    expect(run('prepare', next)).toMatch(/has changes.*docs\/install\.md/s);
    expect(git('status', '--porcelain')).toBe('M docs/install.md');
  });

  it.each([
    [
      'a tag that exists',
      ({ git }: ReturnType<typeof createCheckout>) => git('tag', `v${next}`),
      /tag v97\.1\.0 exists/,
    ],
    [
      'a changelog without changes',
      ({ git, place, read }: ReturnType<typeof createCheckout>) => {
        writeFileSync(place('CHANGELOG.md'), read('CHANGELOG.md').replace('### Added\n\n- A change.\n', ''));
        git('commit', '--all', '--quiet', '--message', 'First');
      },
      /no changes of 97\.1\.0/,
    ],
    [
      'a page without the version',
      ({ git, place }: ReturnType<typeof createCheckout>) => {
        writeFileSync(place('docs/install.md'), 'nothing\n');
        git('commit', '--all', '--quiet', '--message', 'First');
      },
      /docs\/install\.md has no/,
    ],
  ])('The preparation refuses %s, and changes nothing', (_what, change, message) => {
    const checkout = createCheckout();
    change(checkout);
    expect(checkout.run('prepare', next)).toMatch(message);
    expect([checkout.git('status', '--porcelain'), checkout.git('log', '-1', '--format=%s')]).toEqual(['', 'First']);
  });
});

describe('the description of a release', () => {
  it('The description has the notes, the checksum of each file, and where it comes from', () => {
    const { git, place, read, run } = createCheckout();
    expect(run('prepare', next)).toBe('');
    mkdirSync(place('release'));
    const name = `tributary-${next}.tgz`;
    writeFileSync(place(`release/${name}`), 'the package');
    expect(run('describe', 'release')).toBe('');
    expect(read(`release/notes-${next}.md`)).toBe(`# tributary ${next}\n\n### Added\n\n- A change.\n`);
    expect(JSON.parse(read(`release/tributary-${next}.intoto.json`))).toMatchObject({
      _type: 'https://in-toto.io/Statement/v1',
      subject: [{ name, digest: { sha256: sha256('the package') } }],
      predicateType: 'https://slsa.dev/provenance/v1',
      predicate: {
        buildDefinition: {
          externalParameters: { version: next },
          resolvedDependencies: [
            { digest: { gitCommit: git('rev-parse', 'HEAD') } },
            { name: 'package-lock.json', digest: { sha256: sha256(read('package-lock.json')) } },
            { name: '.build/deb.mjs' },
          ],
        },
      },
    });
    const checked = spawnSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], {
      cwd: place('release'),
      encoding: 'utf8',
    });
    expect([checked.status, checked.stdout.trim().split('\n')]).toEqual([
      0,
      [`notes-${next}.md: OK`, `tributary-${next}.intoto.json: OK`, `${name}: OK`],
    ]);
  });

  it('The description refuses a checkout that was changed since its commit, and a folder without files', () => {
    const { place, run } = createCheckout();
    expect(run('prepare', next)).toBe('');
    mkdirSync(place('release'));
    expect(run('describe', 'release')).toMatch(/no built files/);
    appendFileSync(place('CHANGELOG.md'), 'a change\n');
    expect(run('describe', 'release')).toMatch(/was changed/);
  });
});
