// Each dashboard as a value of Grafana's own type, for each version of that type.
// Words are judged as words: TypeScript takes no text for an enum's member. A field that a version does not
// know is no error, as it is none to Grafana.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const PLAIN = `
type Plain<T> = T extends string ? \`\${T}\` : T extends number ? number : T extends boolean | null | undefined ? T
  : T extends readonly (infer One)[] ? readonly Plain<One>[] : unknown extends T ? T
  : { readonly [Key in keyof T]: Plain<T[Key]> };
`;
const [folder, ...versions] = process.argv.slice(2);
const files = [];
mkdirSync("made", { recursive: true });
for (const version of versions) {
  for (const name of readdirSync(folder).filter((one) => one.endsWith(".json"))) {
    const json = readFileSync(join(folder, name), "utf8").trim();
    const path = `made/${version}-${name.replace(".json", ".ts")}`;
    writeFileSync(
      path,
      `import type { Dashboard } from "${version}";\n${PLAIN}const shipped = ${json} as const;\nexport const board: Plain<Dashboard> = shipped;\n`,
    );
    files.push(path);
  }
}
const program = ts.createProgram(files, {
  noEmit: true, strict: true, skipLibCheck: true, target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Node10,
});
const found = ts.getPreEmitDiagnostics(program);
for (const one of found.slice(0, 20)) {
  console.log(one.file?.fileName, ts.flattenDiagnosticMessageText(one.messageText, "\n").slice(-700));
}
console.log(`${files.length} files, ${found.length} errors`);
process.exit(found.length ? 1 : 0);
