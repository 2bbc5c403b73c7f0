// Prints the software bill of materials of the image, as CycloneDX: `node .build/sbom.mjs nats-server@VERSION`. It has
// the packages of node_modules that the program or the console's pages contain, and nats-server.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..');
/** Development packages that .build/console.mjs bundles into the pages. */
const ofPages = new Set(['preact', '@preact/signals', '@preact/signals-core']);

const [server = ''] = process.argv.slice(2);
const [, version] = /^nats-server@(\d+\.\d+\.\d+)$/.exec(server) ?? [];
if (version === undefined) throw new Error(`pass the version of nats-server as nats-server@2.15.1, not '${server}'`);

const listed = execFileSync('npm', ['sbom', '--sbom-format=cyclonedx'], { cwd: root, maxBuffer: 64 * 1024 * 1024 });
const sbom = JSON.parse(listed);
const isShipped = ({ name, properties = [] }) =>
  ofPages.has(name) ||
  !properties.some((property) => property.name === 'cdx:npm:package:development' && property.value === 'true');
const broker = {
  'bom-ref': server,
  type: 'application',
  name: 'nats-server',
  version,
  purl: `pkg:golang/github.com/nats-io/nats-server/v2@v${version}`,
  licenses: [{ license: { id: 'Apache-2.0' } }],
};
const components = [...sbom.components.filter(isShipped), broker];
const refs = new Set([sbom.metadata.component['bom-ref'], ...components.map((component) => component['bom-ref'])]);
const dependencies = sbom.dependencies
  .filter(({ ref }) => refs.has(ref))
  .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) }));
// npm calls the program by the name of its folder.
const { name } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
const metadata = { ...sbom.metadata, component: { ...sbom.metadata.component, name } };
process.stdout.write(`${JSON.stringify({ ...sbom, metadata, components, dependencies })}\n`);
