import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { settlePorts } from '../../src/runtime/http/ports.ts';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { isAlive, listTree, signalProcess } from './processes.ts';
import { waitFor } from './wait.ts';

const run = promisify(execFile);

/** A block may start the service, which takes long on a loaded machine. */
const commandMs = 120_000;

/** The pages for operators. */
const operatorPages = ['install', 'load', 'personal-data', 'keep', 'watch'];

export interface Block {
  readonly section: string;
  readonly language: string;
  readonly text: string;
}

/** Reads the blocks of the pages in order. */
export function readOperatorPages(): readonly Block[] {
  const pages = operatorPages.map((name) => readFileSync(path.join(packageRoot, `docs/${name}.md`), 'utf8'));
  let section = '';
  return [...pages.join('\n').matchAll(/^##+ ([^\n]+)$|^```(\w+)\n(.*?)^```$/gms)].flatMap(
    ([, title, language = '', text = '']) => {
      if (title !== undefined) section = title;
      return title === undefined ? [{ section, language, text }] : [];
    },
  );
}

/** A machine as the pages assume it, below a folder of a test. */
export interface OperationsMachine {
  /** Runs a block as written, except for the paths of the machine. Returns its output; an error has it too. */
  run(block: Block): Promise<string>;
  /** Runs commands that are not a block. */
  sh(commands: string): Promise<string>;
  /** Returns the path in the test's folder. */
  place(file: string): string;
  /** Returns the address of a documented port. */
  address(port: 8080 | 8081 | 8082): string;
  /** Returns the process id of the service, while it runs. */
  pid(): number | undefined;
  destroy(): Promise<void>;
}

const places =
  /(?<![\w.-])(?=\/(?:var\/lib\/tributary|var\/log\/nginx|mnt\/backup|opt\/tributary|etc\/tributary\.env|etc\/nginx|etc\/systemd|usr\/local\/bin\/tributary)(?![\w]))/g;

function writeProgram(file: string, text: string): void {
  writeFileSync(file, text);
  chmodSync(file, 0o755);
}

/**
 * Prepares a machine without an installation, with replacements for commands that an ordinary user lacks: systemctl
 * (test/helpers/service-manager.mjs), useradd, chown, runuser, and an npm that installs the built program. Adapts the
 * files of docs/deploy to the paths of the machine. `nginx`: the executable, if any.
 */
export async function createOperationsMachine(root: string, nginx: string | undefined): Promise<OperationsMachine> {
  const wanted = [8080, 8081, 8082, 443] as const;
  const free = await settlePorts(
    '127.0.0.1',
    wanted.map((port) => ({ port: 0, what: `port ${port}` })),
  );
  const ports = new Map(wanted.map((port, index) => [port, free[index] ?? 0]));
  const place = (text: string): string =>
    text
      .replaceAll(places, root)
      .replaceAll(
        /127\.0\.0\.1:(808[012])\b/g,
        (_match, port: string) => `127.0.0.1:${ports.get(Number(port) as 8080)}`,
      )
      .replaceAll('listen 443 ssl', `listen 127.0.0.1:${ports.get(443)} ssl`)
      .replaceAll('::127.0.0.1: ', `::127.0.0.1:${ports.get(443)} `);
  const folders = [
    'bin',
    'work',
    'state',
    'deploy',
    'var/lib/tributary',
    'var/log/nginx',
    'mnt/backup',
    'opt',
    'etc/nginx/conf.d',
    'etc/systemd/system',
    'usr/local/bin',
  ];
  for (const folder of folders) mkdirSync(path.join(root, folder), { recursive: true });
  const own = {
    S2S_PORT: ports.get(8080),
    API_PORT: ports.get(8081),
    OPS_PORT: ports.get(8082),
    INGEST_WORKERS: 1,
    FLUSH_AGE_MS: 200,
    CACHE_DIR: cacheFolder(process.env),
  };
  const settings = Object.entries(own).map(([name, value]) => `TRIBUTARY_${name}=${value}\n`);
  for (const name of readdirSync(path.join(packageRoot, 'docs/deploy'))) {
    const text = place(readFileSync(path.join(packageRoot, 'docs/deploy', name), 'utf8'));
    writeFileSync(path.join(root, 'deploy', name), name === 'tributary.env' ? text + settings.join('') : text);
  }

  const bin = (name: string): string => path.join(root, 'bin', name);
  const program = path.join(packageRoot, 'dist/main.js');
  writeProgram(bin('installed'), `#!/bin/sh\nexec ${process.execPath} ${program} "$@"\n`);
  writeProgram(
    bin('npm'),
    `#!/bin/sh
# install --global --prefix FOLDER PACKAGE
mkdir -p "$4/bin" "$4/lib/node_modules/tributary/docs"
ln -s ${bin('installed')} "$4/bin/tributary"
ln -s ${root}/deploy "$4/lib/node_modules/tributary/docs/deploy"
`,
  );
  for (const name of ['useradd', 'chown']) writeProgram(bin(name), '#!/bin/sh\n');
  writeProgram(bin('runuser'), '#!/bin/sh\n# -u USER -- COMMAND\nshift 3\nexec "$@"\n');
  writeProgram(
    bin('systemctl'),
    `#!/bin/sh\nexec ${process.execPath} ${path.join(packageRoot, 'test/helpers/service-manager.mjs')} "$@"\n`,
  );
  symlinkSync(place('/usr/local/bin/tributary'), bin('tributary'));
  const nginxConf = path.join(root, 'etc/nginx/nginx.conf');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${root}/state/${kind};`)
    .join(' ');
  writeFileSync(
    nginxConf,
    `${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 1; pid ${root}/state/nginx.pid; error_log ${root}/state/nginx.log;\nevents {}\nhttp { ${temporary} access_log off; include ${root}/etc/nginx/conf.d/*.conf; }\n`,
  );
  const nginxCommand = `${nginx ?? 'nginx'} -c ${nginxConf} -e ${root}/state/nginx.log`;
  writeProgram(bin('nginx'), `#!/bin/sh\nexec ${nginxCommand} "$@"\n`);

  const machine = Object.entries(process.env).filter(([name]) => !name.startsWith('TRIBUTARY_'));
  const env = {
    ...Object.fromEntries(machine),
    PATH: `${root}/bin:${process.env['PATH']}`,
    HOME: place('/var/lib/tributary'),
    TEST_UNITS: `${root}/etc/systemd/system`,
    TEST_STATE: `${root}/state`,
    TEST_NGINX: nginxCommand,
  };
  const pidOf = (name: string): number | undefined => {
    const file = path.join(root, 'state', `${name}.pid`);
    const text = existsSync(file) ? readFileSync(file, 'utf8').trim() : '';
    // nginx -t leaves an empty file.
    return /^[1-9]\d+$/.test(text) ? Number(text) : undefined;
  };
  const sh = async (commands: string): Promise<string> => {
    const { stdout } = await run('sh', ['-euc', commands], {
      cwd: path.join(root, 'work'),
      env,
      timeout: commandMs,
      killSignal: 'SIGKILL',
    }).catch((error: unknown) => {
      const { stdout: out = '', stderr = '', message } = error as { stdout?: string; stderr?: string; message: string };
      throw new Error(`${message}\n${out}\n${stderr}`);
    });
    return stdout;
  };
  return {
    run: ({ text }) => sh(place(text)),
    sh: (commands) => sh(place(commands)),
    place,
    address: (port) => `http://127.0.0.1:${ports.get(port)}`,
    pid: () => pidOf('tributary'),
    async destroy() {
      const pids = [pidOf('tributary'), pidOf('nginx')].filter((pid) => pid !== undefined).flatMap(listTree);
      for (const pid of pids) signalProcess(pid, 'SIGKILL');
      await waitFor('every process of the machine has exited', () => !pids.some(isAlive));
    },
  };
}
