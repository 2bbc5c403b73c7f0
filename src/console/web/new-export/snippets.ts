/** Arguments of an export; a list repeats its name. */
type SnippetInput = Readonly<Record<string, string | readonly string[] | undefined>>;

/** A program that creates the same export. */
export interface Snippet {
  readonly name: string;
  readonly text: string;
}

/** Quotes a word for a POSIX shell. */
function quote(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

function pairsOf(request: SnippetInput): (readonly [string, string])[] {
  return Object.entries(request).flatMap(([name, value]) =>
    (value === undefined ? [] : typeof value === 'string' ? [value] : value).map((each) => [name, each] as const),
  );
}

/** Encodes a name for curl, which encodes only the text behind the first `=`. */
function encodeName(name: string): string {
  return /^[\w.[\]-]+$/.test(name) ? name : encodeURIComponent(name);
}

function toCurl(origin: string, request: SnippetInput): string {
  const words = pairsOf(request).map(([name, value]) => `  --data-urlencode ${quote(`${encodeName(name)}=${value}`)}`);
  return [`curl -u "$USER_ID:$SECRET" ${origin}/api/raw/v1/export/create.json`, ...words].join(' \\\n');
}

/** Options of the command line by parameter; others use `--where`. */
const ownOptions: Readonly<Record<string, string>> = {
  selectors: '--selectors',
  dateFrom: '--from',
  dateTo: '--to',
  timezone: '--timezone',
  idApp: '--app',
  eventName: '--event-name',
  sinceVersion: '--since-version',
  asOf: '--as-of',
  format: '--format',
  compression: '--compression',
  columns: '--columns',
  dialect: '--dialect',
  name: '--name',
};

/** File name endings of a format by compression. */
export interface FormatEndings {
  readonly name: string;
  readonly endings: Readonly<Record<string, string>>;
}

function fileName(
  { event, format = 'csv', compression = 'none' }: SnippetInput,
  formats: readonly FormatEndings[],
): string {
  const endings = formats.find(({ name }) => name === format)?.endings;
  return `${String(event)}${endings?.[String(compression)] ?? ''}`;
}

function toCommand(origin: string, request: SnippetInput, formats: readonly FormatEndings[]): string {
  const words = pairsOf(request)
    .filter(([name]) => name !== 'event')
    .map(([name, value]) => {
      const option = ownOptions[name];
      if (option === undefined) return `--where ${quote(`${name}=${value}`)}`;
      return `${option}${value.startsWith('-') ? '=' : ' '}${quote(value)}`;
    });
  const head = `TRIBUTARY_SECRET=$SECRET tributary export ${String(request['event'])}`;
  return [head, `--url ${origin} --user $USER_ID`, ...words, `-o ${quote(fileName(request, formats))}`].join(' \\\n  ');
}

/** Renders a program without dependencies that creates the export, waits, and downloads and verifies its files. */
function toPython(origin: string, request: SnippetInput): string {
  const pairs = pairsOf(request).map(([name, value]) => `    (${JSON.stringify(name)}, ${JSON.stringify(value)}),`);
  return `import base64, hashlib, json, os, time, urllib.parse, urllib.request

BASE = ${JSON.stringify(`${origin}/api/raw/v1/export`)}
USER = os.environ["USER_ID"] + ":" + os.environ["SECRET"]
HEADERS = {"Authorization": "Basic " + base64.b64encode(USER.encode()).decode()}


def call(method, arguments):
    body = urllib.parse.urlencode(arguments).encode()
    request = urllib.request.Request(f"{BASE}/{method}.json", body, HEADERS)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["data"]


export = call("create", [
${pairs.join('\n')}
])
while True:
    state = call("get", {"idRawExport": export["idRawExport"]})
    if state["status"] != "In progress":
        break
    print(state["progress"])
    time.sleep(2)
if state["status"] != "Success!":
    raise SystemExit(state.get("errorMessage", state["status"]))
for file in state["files"]:
    name = urllib.parse.urlparse(file["link"]).path.rsplit("/", 1)[1]
    urllib.request.urlretrieve(file["link"], name)
    with open(name, "rb") as data:
        if hashlib.sha256(data.read()).hexdigest() != file["sha256"]:
            raise SystemExit(name + " is damaged: download it again")
    print(name, file["rows"], "rows")
`;
}

export function makeSnippets(
  origin: string,
  request: SnippetInput,
  formats: readonly FormatEndings[],
): readonly Snippet[] {
  return [
    { name: 'curl', text: toCurl(origin, request) },
    { name: 'Command line', text: toCommand(origin, request, formats) },
    { name: 'Python', text: toPython(origin, request) },
  ];
}
