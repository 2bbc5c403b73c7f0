// The steps of `make release VERSION=x.y.z` around the builds.
//   node .build/release.mjs prepare VERSION   sets the version and commits it, in a clean checkout
//   node .build/release.mjs describe FOLDER   writes notes, provenance and checksums next to the built files
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';

const root = process.cwd();
const semver = /^(\d+)\.(\d+)\.(\d+)(?:-[0-9A-Za-z.-]+)?$/;
const openSection = /^## (?:(\d+\.\d+\.\d+) \(unreleased\)|Unreleased)$/m;

/** Files that name the version of the image, where they are. */
const images = [
  ['Dockerfile', /(?<=^ARG VERSION=).*$/gm],
  ['deploy/kubernetes/one-node/kustomization.yaml', /(?<=newTag: )\S+/g],
  ['deploy/kubernetes/cluster/kustomization.yaml', /(?<=newTag: )\S+/g],
];

/** Ends the release with a sentence. */
class ReleaseError extends Error {}

const read = (file) => readFileSync(path.join(root, file), 'utf8');
const write = (file, text) => writeFileSync(path.join(root, file), text);
const git = (...words) => execFileSync('git', words, { cwd: root, encoding: 'utf8' }).trim();
const readVersion = () => JSON.parse(read('package.json')).version;
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** Compares the numbers of two versions. */
function compareVersions(one, other) {
  const [a, b] = [one, other].map((version) => semver.exec(version).slice(1, 4).map(Number));
  const differing = a.findIndex((number, index) => number !== b[index]);
  return differing < 0 ? 0 : a[differing] - b[differing];
}

/** Replaces a pattern that must be there. */
function replaceIn(file, pattern, to) {
  const before = read(file);
  if (before.search(pattern) < 0)
    throw new ReleaseError(`${file} has no ${pattern}: name the version there, or change .build/release.mjs`);
  write(file, before.replaceAll(pattern, to));
}

/** Escapes a version for a pattern. */
const escaped = (version) => version.replaceAll('.', '[.]');

/** Sets the version wherever it stands. */
function setVersion(version, previous) {
  replaceIn('package.json', /(?<=^ {2}"version": ")[^"]+/gm, version);
  const lock = JSON.parse(read('package-lock.json'));
  lock.version = version;
  lock.packages[''].version = version;
  write('package-lock.json', `${JSON.stringify(lock, null, 2)}\n`);
  // The page of the installation names this version; that of upgrades the previous one too.
  replaceIn('docs/install.md', new RegExp(`(?<=tributary[-_]|VERSION=)${escaped(previous)}`, 'g'), version);
  const named = [...new Set(read('docs/keep.md').match(/(?<=tributary-)\d+[.]\d+[.]\d+/g))].toSorted(compareVersions);
  if (named.length !== 2)
    throw new ReleaseError(`docs/keep.md names ${named.length} versions: name the old and the new one`);
  const [older, newer] = named;
  replaceIn('docs/keep.md', new RegExp(`(?<=tributary-)(?:${escaped(older)}|${escaped(newer)})`, 'g'), (found) =>
    found === newer ? version : previous,
  );
  for (const file of ['src/export/api/openapi-examples.ts', 'src/ingest/openapi-examples.ts'])
    replaceIn(file, new RegExp(`(?<=version: ')${escaped(previous)}(?=')`, 'g'), version);
  for (const [file, pattern] of images) if (existsSync(path.join(root, file))) replaceIn(file, pattern, version);
}

/** Returns the section of a version in the changelog, without its heading. */
function readChanges(version) {
  const sections = read('CHANGELOG.md').split(/^(?=## )/m);
  const section = sections.find((text) => text.startsWith(`## ${version} (`));
  if (section === undefined)
    throw new ReleaseError(`CHANGELOG.md has no section of ${version}: run the preparation first`);
  return section.slice(section.indexOf('\n')).trim();
}

/** Sets the version, dates the changelog, and commits both. Nothing is changed on an error. */
function prepare(version) {
  if (!semver.test(version)) throw new ReleaseError(`'${version}' is not a version: pass VERSION=x.y.z`);
  const previous = readVersion();
  if (compareVersions(version, previous) <= 0)
    throw new ReleaseError(`version ${version} is not above ${previous}, the last one: pass a higher VERSION`);
  const changes = git('status', '--porcelain');
  if (changes !== '') throw new ReleaseError(`the checkout has changes: commit or remove them first\n${changes}`);
  if (git('tag', '--list', `v${version}`) !== '')
    throw new ReleaseError(`tag v${version} exists: pass another VERSION`);
  const [heading, planned] = openSection.exec(read('CHANGELOG.md')) ?? [];
  if (heading === undefined)
    throw new ReleaseError(`CHANGELOG.md has no section "## ${version} (unreleased)": add the changes`);
  if (planned !== undefined && planned !== version)
    throw new ReleaseError(`CHANGELOG.md plans ${planned}, not ${version}: change its heading or pass that VERSION`);
  try {
    setVersion(version, previous);
    write(
      'CHANGELOG.md',
      read('CHANGELOG.md').replace(heading, `## ${version} (${new Date().toISOString().slice(0, 10)})`),
    );
    if (readChanges(version) === '') throw new ReleaseError(`CHANGELOG.md has no changes of ${version}: add them`);
    git('commit', '--all', '--quiet', '--message', `Release ${version}`);
  } catch (error) {
    git('checkout', '--quiet', '--', '.');
    throw error;
  }
}

const digestOf = (file) => ({ sha256: hash(read(file)) });

/** Describes the build as an in-toto statement with SLSA's provenance. */
function describeBuild(version, artifacts) {
  const commit = git('rev-parse', 'HEAD');
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: artifacts.map(([name, digest]) => ({ name, digest: { sha256: digest } })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'urn:tributary:make-release',
        externalParameters: { version },
        resolvedDependencies: [
          {
            uri: `git+${git('config', '--default', 'urn:tributary:local', 'remote.origin.url')}`,
            digest: { gitCommit: commit },
          },
          { name: 'package-lock.json', digest: digestOf('package-lock.json') },
          { name: '.build/deb.mjs', digest: digestOf('.build/deb.mjs') },
        ],
      },
      runDetails: {
        builder: { id: `urn:tributary:builder:${hostname()}`, version: { node: process.versions.node } },
        metadata: { invocationId: commit, finishedOn: new Date().toISOString() },
      },
    },
  };
}

/** Writes the notes, the provenance and the checksums of the files in a folder. */
function describe(folder) {
  const version = readVersion();
  const changes = git('status', '--porcelain');
  if (changes !== '') throw new ReleaseError(`the checkout was changed since its commit\n${changes}`);
  const place = (name) => path.join(root, folder, name);
  const own = [`notes-${version}.md`, `tributary-${version}.intoto.json`, 'SHA256SUMS'];
  const [notes, provenance, sums] = own;
  const list = () => readdirSync(path.join(root, folder)).toSorted();
  const built = list().filter((name) => !own.includes(name));
  if (built.length === 0) throw new ReleaseError(`${folder} has no built files: run make release`);
  const hashes = (names) => names.map((name) => [name, hash(readFileSync(place(name)))]);
  writeFileSync(place(notes), `# tributary ${version}\n\n${readChanges(version)}\n`);
  writeFileSync(place(provenance), `${JSON.stringify(describeBuild(version, hashes(built)), null, 2)}\n`);
  const summed = hashes(list().filter((name) => name !== sums));
  writeFileSync(place(sums), summed.map(([name, digest]) => `${digest}  ${name}\n`).join(''));
}

const [step, argument = ''] = process.argv.slice(2);
const steps = { prepare, describe };
try {
  if (!Object.hasOwn(steps, step ?? '')) throw new ReleaseError('name a step: prepare VERSION, or describe FOLDER');
  steps[step](argument);
} catch (error) {
  if (!(error instanceof ReleaseError)) throw error;
  process.stderr.write(`make release: ${error.message}\n`);
  process.exitCode = 1;
}
