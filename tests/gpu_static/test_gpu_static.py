"""python3 -m unittest        (the tests that compile need nvcc, cuobjdump and nvdisasm; they are skipped without)"""
import contextlib, io, json, math, pathlib, shutil, subprocess, sys, tempfile, unittest

import benchmarks, count, model, sass

here = pathlib.Path(__file__).resolve().parent


def kernel(text):
    """A kernel of lines of SASS, 16 bytes each; "name:" before a line can be jumped to by `name."""
    labels, lines = {}, []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            labels["`" + line[:-1]] = f"{16 * len(lines):#x}"
        else:
            lines.append(line)
    for name, address in labels.items():
        lines = [line.replace(name, address) for line in lines]
    return sass.Kernel([sass.parse(f"/*{16 * n:04x}*/ {line} ; /* 0x0 */") for n, line in enumerate(lines)])


class Paths(unittest.TestCase):
    def trip(self, text):
        flow = kernel(text)
        return [i.opcode for i in flow.instructions(flow.main_loop(sass.tensor_work))]

    def test_work_of_tensor_cores_is_in_units_of_16816(self):
        def work(opcode):
            return sass.tensor_work(sass.Instruction(0, "", opcode, []))
        self.assertEqual(work("HMMA.16816.F32.BF16"), 1)
        self.assertEqual(work("HMMA.1688.F32.TF32"), 0.5)
        self.assertEqual(work("HGMMA.64x256x16.F32.BF16"), 32)
        self.assertEqual(work("FFMA"), 0)

    def test_accesses_before_the_wait_are_found(self):
        def early(*opcodes, arch="sm_90a"):
            return count.is_early(count.Kernel("", arch, [sass.Instruction(0, "", o, []) for o in opcodes], 0, 0))
        self.assertFalse(early("S2R", "LDC", "ACQBULK", "LDG.E", "PREEXIT", "STG.E"))
        self.assertFalse(early("ACQBULK", "PREEXIT", "EXIT"))
        self.assertTrue(early("LDG.E.128", "ACQBULK", "PREEXIT"))
        self.assertTrue(early("UTMALDG.2D", "ACQBULK", "PREEXIT"))
        self.assertTrue(early("ACQBULK", "LDG.E", "EXIT"))
        self.assertTrue(early("PREEXIT", "EXIT"))
        self.assertFalse(early("LDG.E", "EXIT", arch="sm_80"))
        self.assertFalse(early("LDC", "EXIT", "BRA"))  # has no code for this GPU

    def test_sums_are_counted_once_however_many_products_they_take(self):
        trip = [sass.parse(f"/*0000*/ HMMA.16816.F32.BF16 {o} ;")
                for o in ("R4, R40, R50, R4", "R8, R40, R52, R8.reuse", "R12, R44, R50, R4", "R8, R44, R52, R8")]
        self.assertEqual(sass.sums_of(trip), 8)

    def test_products_of_warp_groups_have_a_in_registers_or_in_shared_memory(self):
        trip = [sass.parse(f"/*0000*/ HGMMA.64x64x16.F32.BF16 {o} ;")
                for o in ("R24, R88, gdesc[UR8].tnspB, RZ, !UPT", "R24, R92, gdesc[UR8].tnspB, R24, gsb0",
                          "R56, gdesc[UR12], R56, UP0")]
        self.assertEqual(sass.sums_of(trip), 64)
        self.assertEqual(sum(map(sass.tensor_work, trip)), 24)

    def test_what_is_known_of_numbers(self):
        known = {"R1": 0x12345678, "R2": 5, "R3": 0xFFFFFFFE, "P0": True, "UR4": 7}
        cases = {"MOV R9, R1": 0x12345678, "IMAD R9, R2, 0x3, R2": 20, "IMAD R9, RZ, R8, R2": 5,
                 "IMAD R9, R8, R2, R2": None,
                 "IADD3 R9, -R2, 0x7, RZ": 2, "IADD3 R9, P1, R1, R2, R3": 0x1234567B, "VIADD R9, R3, 0x3": 1,
                 "LEA R9, R2, R2, 0x2": 25, "LEA.HI R9, R1, R2, RZ, 0x8": 0x12 + 5, "LEA.HI R9, R1, RZ, R2, 0x4": 0x51,
                 "SHF.R.U32.HI R9, RZ, 0x1, R3": 0x7FFFFFFF, "SHF.R.S32.HI R9, RZ, 0x1, R3": 0xFFFFFFFF,
                 "SHF.L.U32 R9, R2, 0x2, RZ": 20, "LOP3.LUT R9, R1, 0xff, RZ, 0xc0, !PT": 0x78,
                 "ULOP3.LUT UR9, UR4, 0x8, URZ, 0xfc, !UPT": 15,
                 "SEL R9, R1, R2, P0": 0x12345678, "SEL R9, R1, R2, !P0": 5, "VIMNMX R9, R2, R3, PT": 0xFFFFFFFE,
                 "VIMNMX.U32 R9, R2, R3, PT": 5, "IMNMX R9, R2, R3, !PT": 5, "LDC R9, c[0x0][0x28]": None,
                 "CS2R R8, SRZ": 0,
                 "IMAD.WIDE.U32 R8, R2, R2, RZ": None, "S2R R9, SR_TID.X": 3, "S2R R9, SR_CTAID.X": None}
        for text, expected in cases.items():
            i = sass.parse(f"/*0000*/ {text} ;")
            after = {**known, "R9": 1, "UR9": 1}
            sass.run(i, after, 3)
            self.assertEqual(after.get("UR9" if " UR9" in text else "R9"), expected, text)
        for text, expected in {"ISETP.GE.AND P1, PT, R3, RZ, PT": False, "ISETP.GE.U32.AND P1, PT, R3, RZ, PT": True,
                               "ISETP.LT.OR P1, PT, R8, RZ, P0": True, "ISETP.LT.AND P1, PT, R8, RZ, P0": None,
                               "ISETP.EQ.AND P1, PT, R2, 0x5, !P0": False,
                               "LOP3.LUT P1, RZ, R2, 0x2, RZ, 0xc0, !PT": False,
                               "LOP3.LUT P1, RZ, R2, 0x4, RZ, 0xc0, !PT": True,
                               "PLOP3.LUT P1, PT, P0, PT, P2, 0xa8, 0x0": None,
                               "PLOP3.LUT P1, PT, PT, PT, PT, 0x8, 0x0": False,
                               "@!P0 ISETP.GE.AND P1, PT, R8, R9, PT": True,
                               "@P2 ISETP.EQ.AND P1, PT, R2, 0x6, PT": None}.items():
            after = {**known, "P1": True}
            sass.run(sass.parse(f"/*0000*/ {text} ;"), after, 3)
            self.assertEqual(after.get("P1"), expected, text)

    def test_the_shortest_way_that_passes_all_products(self):
        self.assertEqual(self.trip("""
            loop:
            LDC R1, c[0x0][0x210]
            @P0 BRA `slow
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            BRA `join
            slow:
            FADD R2, R2, R3
            FADD R2, R2, R3
            FADD R2, R2, R3
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            join:
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            EXIT"""), ["LDC", "BRA", "HMMA.16816.F32.BF16", "BRA", "ISETP.NE.AND", "BRA"])

    def test_a_way_around_the_products_is_not_taken(self):
        self.assertIn("HMMA.16816.F32.BF16", self.trip("""
            loop:
            LDC R1, c[0x0][0x210]
            @P0 BRA `join
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            FADD R2, R2, R3
            join:
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            EXIT"""))

    remainder = """
            S2R R0, SR_TID.X
            VIMNMX R2, R0, {limit}, !PT
            IADD3 R3, -R0, 0x7f, R2
            LEA.HI R3, R3, 0x1, RZ, 0x19
            loop:
            LDC R1, c[0x0][0x210]
            LOP3.LUT P0, RZ, R3, 0x3, RZ, 0xc0, !PT
            @!P0 BRA `four
            one:
            LDGSTS.E.BYPASS.128 [R6], desc[UR4][R8.64]
            ISETP.GE.U32.AND P2, PT, R3, 0x4, PT
            @!P2 BRA `products
            four:
            LDGSTS.E.BYPASS.128 [R6], desc[UR4][R8.64]
            LDGSTS.E.BYPASS.128 [R6], desc[UR4][R8.64]
            LDGSTS.E.BYPASS.128 [R6], desc[UR4][R8.64]
            LDGSTS.E.BYPASS.128 [R6], desc[UR4][R8.64]
            products:
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            EXIT"""

    def test_branches_that_follow_from_the_thread_are_decided(self):
        copies = {limit: self.trip(self.remainder.format(limit=limit)).count("LDGSTS.E.BYPASS.128")
                  for limit in ("0x180", "0x0", "0x200")}  # 4, 1 and 5 trips of a loop that was unrolled by 4
        self.assertEqual(copies, {"0x180": 4, "0x0": 1, "0x200": 5})

    def test_inner_loops_count_as_often_as_they_run(self):
        text = """
            loop:
            LDC R1, c[0x0][0x210]
            IMAD.MOV.U32 R2, RZ, RZ, RZ
            inner:
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            VIADD R2, R2, 0x40
            ISETP.NE.AND P0, PT, R2, 0x80, PT
            @P0 BRA `inner
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            EXIT"""
        self.assertEqual(self.trip(text).count("HMMA.16816.F32.BF16"), 2)
        self.assertEqual(self.trip(text.replace("0x80", "0x200")).count("HMMA.16816.F32.BF16"), 8)

    def test_a_call_that_nobody_returns_from_is_a_jump(self):
        text = """
            loop:
            LDC R1, c[0x0][0x210]
            IMAD.MOV.U32 R2, RZ, RZ, RZ
            inner:
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            ISETP.GE.AND P1, PT, R2, 0x40, PT
            VIADD R2, R2, 0x40
            @P1 CALL.REL.NOINC `out
            BRA `inner
            out:
            ISETP.NE.AND P0, PT, R1, RZ, PT
            @P2 CALL.REL.NOINC `divide
            @P0 BRA `loop
            EXIT
            divide:
            MUFU.RCP R1, R1
            RET.REL.NODEC R2 0x0"""
        self.assertEqual(self.trip(text).count("HMMA.16816.F32.BF16"), 2)
        self.assertEqual([i.opcode for i in kernel(text).code].count("CALL.REL.NOINC"), 1)

    def test_hmma_that_not_every_trip_executes(self):
        flow = kernel("""
            loop:
            LDC R1, c[0x0][0x210]
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `on
            HMMA.16816.F32.BF16 R16, R8, R12, R16
            on:
            @P2 BRA `loop
            EXIT""")
        way = flow.main_loop(sass.tensor_work)
        self.assertEqual([len(flow.instructions(w)) for w in (way, flow.least_trip(way))], [6, 5])

    def test_after_the_loop(self):
        flow = kernel("""
            loop:
            LDC R1, c[0x0][0x210]
            HMMA.16816.F32.BF16 R4, R8, R12, R4
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            @P2 BRA `end
            STG.E.128 desc[UR4][R2.64], R4
            end:
            EXIT""")
        self.assertEqual(len(flow.instructions(flow.after(flow.main_loop(sass.tensor_work)))), 3)


    def test_groups_with_different_tasks(self):
        text = """
            USETMAXREG.DEALLOC.CTAPOOL 0x28
            S2R R0, SR_TID.X
            ISETP.GE.U32.AND P0, PT, R0, 0x180, PT
            @P0 BRA `tile
            loop:
            LDC R1, c[0x0][0x210]
            @P3 BRA `full
            LDG.E R5, desc[UR4][R2.64]
            full:
            HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24, UP0
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `loop
            @P2 BRA `without_bias
            LDS R2, [R3]
            without_bias:
            STSM.16.M88.4 [R4], R8
            EXIT
            tile:
            LDC R1, c[0x0][0x210]
            IMAD.MOV.U32 R2, RZ, RZ, RZ
            part:
            STS.128 [R4], R8
            VIADD R2, R2, 0x40
            ISETP.NE.AND P0, PT, R2, 0x80, PT
            @P0 BRA `part
            ISETP.NE.AND P1, PT, R1, RZ, PT
            @P1 BRA `tile
            EXIT"""
        flow, alike = kernel(text), kernel(text.replace("USETMAXREG", "NOP"))
        self.assertEqual(len(flow.instructions(flow.main_loop(sass.tensor_work))), 5)  # another group moves the bytes
        self.assertEqual(len(alike.instructions(alike.main_loop(sass.tensor_work))), 6)
        self.assertEqual(len(flow.instructions(flow.after(flow.main_loop(sass.tensor_work)))), 4)  # with the bias
        self.assertEqual(len(sass.finishing(flow.code)), 12)  # two parts
        self.assertEqual(sass.finishing(alike.code), [])
        self.assertEqual(sass.finishing(kernel(text.replace("STS.", "LDS.")).code), [])


class Counting(unittest.TestCase):
    def test_names(self):
        long = "void orrery::cuda::map_kernel<orrery::(anonymous namespace)::Value<int> >(long)"
        self.assertEqual(count.shortened("void a<b<c<int> > >(long)"), "a<b<c<int>>>")
        self.assertEqual(count.shortened(long), "map_kernel<Value<int>>")

    def test_limits(self):
        rows = [{"kernel": "product<true>", "arch": "sm_90", "per_hmma": 7.6, "epilogue": 500}]
        for text, expected in {"product=8": 0, "product=7.5": 1, "attend=8": 1,  # a limit of nothing is a mistake
                               "epilogue:product=500": 0, "epilogue:product=499": 1, "registers:product=255": 1,
                               "a::product=8": 1}.items():
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(count.exceeded(rows, [count.read_limit(text)]), expected, text)
        self.assertRaises(ValueError, count.read_limit, "product")

    def test_peers(self):
        rows = [{"kernel": f"tensor_core_attention_backward_{part}_kernel<WeightedProblem<float, SoftmaxWeights>, 64>",
                 "arch": "sm_90", "per_hmma": n, "ldsm_per_hmma": 0}
                for part, n in (("queries", 632 / 48), ("keys", 884 / 64))]
        strangers = count.compare(rows, json.loads((here / "peers.json").read_text())["peers"])
        self.assertEqual([s.split("_kernel")[0] for s in strangers[:2]], ["^tensor_core", "attention_forward"])
        self.assertAlmostEqual(rows[-1]["per_hmma"], 18.95, 2)  # (632 + 884) / 80
        self.assertAlmostEqual(rows[-1]["ratio"], 18.95 / 3.42, 2)


class Model(unittest.TestCase):
    card = model.cards["h100"]._replace(groups=False)
    product = {"kernel": "tensor_core_kernel<bf16, AddBias<bf16>>", "arch": "sm_90", "per_hmma": 7.5, "hmma": 33,
               "instructions": 250, "ldsm": 13, "copied": 64, "outputs": 64, "after_loop": 2000,
               "plain": {"instructions": 240, "hmma": 32, "ldsm": 12}}
    forward = {"kernel": "tensor_core_attention_forward_kernel<SoftmaxWeights, 64>", "arch": "sm_90", "per_hmma": 10,
               "hmma": 128, "instructions": 1280, "ldsm_per_hmma": 0.3, "copied": 0, "after_loop": 1000}

    def step(self, *launches, counts=(product, forward)):
        return model.Step(self.card, model.Sizes(8 * 1024, 768, 50257, 124.44e6),
                          [model.Launch(*launch) for launch in launches], model.counts_of(counts, self.card))

    def test_a_product_follows_from_its_record_and_its_count(self):
        launch = ("forward", "linear", "matmul", 384, 256, 12, 61440, self.product["kernel"],
                  "product 8192 768 768 1 1 1 26345472 64 6 0".split())
        row = self.step(launch).rows[0]
        warp = 640 + 768 / 32 * 240 + 2000  # 128 x 128 by 8 warps: 32 HMMA are a depth of 32
        self.assertAlmostEqual(row["issue"], 3 * 132 * 8 * warp / (132 * 4 * 1.755e9), 9)  # three rounds of blocks
        self.assertAlmostEqual(row["smem"], 3 * 24 * (8 * 12 * 4 + 128) / 1.755e9, 9)
        self.assertEqual((row["n"], row["flops"], row["bytes"]), (12, 2 * 8192 * 768 * 768, 26345472))
        pieces = (*launch[:8], "product 8192 768 768 1 2 0 26345472 64 3 0".split())
        odd = self.step(pieces).rows[0]  # half of k a block, rows that begin anywhere
        warp = 640 + 384 / 32 * 240 * model.odd_gemm + 2000
        self.assertAlmostEqual(odd["issue"], 3 * 132 * 8 * warp / (132 * 4 * 1.755e9), 9)
        self.assertEqual(odd["bytes"], 26345472 + 8192 * 768 * 4)

    def test_warp_groups_take_the_peak_of_the_card_and_a_time_for_each_round_of_tiles(self):
        launch = ("forward", "linear", "matmul", 384, 256, 12, 61440, self.product["kernel"],
                  "product 8192 768 768 1 1 1 26345472 64 6 0".split())
        groups = self.card._replace(groups=True)
        row = model.Step(groups, model.Sizes(8 * 1024, 768, 50257, 124.44e6), [model.Launch(*launch)],
                         model.counts_of([self.product], groups)).rows[0]
        products = 3 * 24 * 8 * 32 * 4096 * 132 / 989e12  # three rounds
        self.assertAlmostEqual(row["bound"], products, 9)
        self.assertAlmostEqual(row["likely"], products / model.group_share + 3 * model.tile_time + model.launch_time, 9)

    def test_tiles_of_the_first_columns_sum_rows_of_a(self):
        launch = ("backward", "linear", "matmul", 12, 256, 1, 61440, self.product["kernel"],
                  "product 256 768 768 1 1 1 9 2 6 1".split())
        plain = self.step((*launch[:8], [*launch[8][:-1], "0"])).rows[0]
        row = self.step(launch).rows[0]  # one round: a block that sums decides
        self.assertAlmostEqual(row["issue"] - plain["issue"], 8 * 24 * 10 / (4 * 1.755e9), 12)
        self.assertAlmostEqual(row["smem"] - plain["smem"], 24 * 8 * 1 * 4 / 1.755e9, 12)
        self.assertAlmostEqual(row["bound"], max(row["issue"], row["smem"], 24 * 8 * 33 * 4096 * 132 / 989e12 / 0.62))

    def test_blocks_of_the_first_columns(self):
        first = [b for b in range(2 * 19 * 3) if model.in_first_column(b, 19, 3)]  # bands of 16 tiles and of 3
        self.assertEqual(first, [*range(16), 48, 49, 50, *range(57, 73), 105, 106, 107])

    def test_a_multiprocessor_takes_the_next_block_when_it_is_free(self):
        works = [model.Work(5, 1, 1), model.Work(1, 1, 1), model.Work(1, 1, 1), model.Work(3, 1, 1)]
        self.assertEqual(model.busiest_of(works, 4, 2), (5, 2, 2))
        self.assertEqual(model.busiest_of(works[::-1], 4, 2), (7, 2, 2))
        self.assertEqual(model.busiest_of(works[:1], 5, 2), (15, 3, 3))  # all alike, in three rounds

    def test_attention_follows_from_its_record_and_its_count(self):
        launch = ("forward", "attend", "attention: tensor core forward", 768, 128, 12, 55296, self.forward["kernel"],
                  "attention 8 12 1024 1024 64".split())
        row = self.step(launch).rows[0]
        trips = (1024 + 128) / 2 / 64  # a block owns 128 queries and walks over 64 keys at a time
        warp = trips * 1280 + 640 + 1000
        self.assertAlmostEqual(row["issue"], 6 * 132 * 4 * warp / (132 * 4 * 1.755e9), 9)
        self.assertEqual(row["flops"], 2 * 8 * 12 * 1024 * 1024 * 64)

    def test_what_is_not_counted_or_not_known_is_an_error(self):
        product = ("forward", "linear", "matmul", 384, 256, 12, 0, "tensor_core_kernel<other>",
                   "product 8 8 8 1 1 1 9 1 1 0".split())
        self.assertRaisesRegex(model.Failure, "has not counted tensor_core_kernel<other>", self.step, product)
        row = ("forward", "mystery", "rows", 64, 256, 1, 0, "rows_kernel<New>", [])
        self.assertRaisesRegex(model.Failure, "memory is moved by forward mystery rows", self.step, row)
        self.assertEqual(self.step((*row[:3], 63, *row[4:])).rows[0]["bytes"], 0)  # too small to matter
        norm = ("forward", "layer_norm", "rows", 1024, 256, 25, 0, "warp_rows_kernel<Forward<bf16>>", [])
        self.assertRaisesRegex(model.Failure, "has not counted warp_rows_kernel<Forward", self.step, norm)
        counted = {"kernel": norm[7], "arch": "sm_90", "per_16_bytes": 100}
        self.assertEqual(self.step(norm, counts=[counted]).rows[0]["bytes"], 2 * 8192 * 768 * 2)

    def test_what_was_recorded_can_be_read(self):
        for batch in (8, 16, 32):
            launches = model.read_launches(here / "launches" / f"b{batch}.tsv")
            products = [l for l in launches if l.work[:1] == ["product"]]
            self.assertEqual({l.name for l in products}, {"matmul"})
            head = [l for l in products if "50257" in l.work[1:4]]  # 2 m n k each: forward, dx and dW
            self.assertEqual(sum(l.times * 2 * math.prod(map(int, l.work[1:4])) for l in head),
                             6 * batch * 1024 * 768 * 50257)
            for l in products:
                m, n, _, of_batch, pieces, *_, down, across, _ = map(int, l.work[1:])
                in_runs = "runs" in l.kernel  # of 132 blocks, on any GPU
                self.assertEqual(l.blocks, 132 if in_runs else down * across * pieces * of_batch)
                rounds = math.ceil(l.blocks / self.card.multiprocessors)
                self.assertGreater(l.blocks, 0.8 * rounds * self.card.multiprocessors, l.work)  # are busy
            attention = [l for l in launches if l.work[:1] == ["attention"] and "tensor core" in l.name]
            self.assertEqual(sum(l.times for l in attention), 36)

    def test_a_step_with_warp_groups_launches_no_kernel_for_terms_of_attention(self):
        without, using = (model.read_launches(here / "launches" / name) for name in ("b8.tsv", "90/b8.tsv"))
        of_terms = [l.times for l in without if l.name == "attention: inner products"]
        self.assertEqual(of_terms, [12])
        self.assertNotIn("attention: inner products", {l.name for l in using})
        self.assertLessEqual(sum(l.times for l in using), 282)

    def test_attention_that_sees_all_keys(self):
        launch = ("forward", "attend", "attention: tensor core forward", 768, 128, 12, 55296, self.forward["kernel"],
                  "attention 8 12 1024 1024 64 full".split())
        row = self.step(launch).rows[0]
        self.assertAlmostEqual(row["issue"], 6 * 132 * 4 * (1024 / 64 * 1280 + 640 + 1000) / (132 * 4 * 1.755e9), 9)
        self.assertEqual(row["flops"], 4 * 8 * 12 * 1024 * 1024 * 64)

    def test_what_a_step_works_on_follows_from_its_record(self):
        sizes = model.sizes_of(model.read_launches(here / "launches" / "b8.tsv"), model.parameters)
        self.assertEqual(sizes, model.Sizes(8 * 1024, 768, 50257, model.parameters))
        by_name = {(f.dtype, f.case): f for f in benchmarks.read_benchmarks()}
        step = by_name["bf16", "train/gpt-char-medium"]
        self.assertEqual(model.sizes_of(step.launches, step.parameters), model.Sizes(64 * 256, 384, 65, 10750080))
        self.assertEqual(model.sizes_of(by_name["bf16", "attention/relu/L4096/full"].launches, 0),
                         model.Sizes(4096, 4 * 64, 0, 0))

    def test_the_optimizer_moves_each_parameter_once(self):
        launches = [l for l in model.read_launches(here / "launches" / "b8.tsv") if l.phase == "optimizer"]
        adamw = next(l.kernel for l in launches if l.name == "rows" and l.blocks >= model.large)
        counted = {adamw: {"kernel": adamw, "per_16_bytes": 9}}
        step = model.Step(self.card, model.Sizes(8 * 1024, 768, 50257, 124.44e6), launches, counted)
        self.assertAlmostEqual(step.total("bytes"), (4 + 30) * 124.44e6)  # the norm of the gradients, and the update

    def test_a_limit_of_the_ratio(self):
        for limit in ("ratio:h100 8=9", "ratio:a100 8=9"):  # nothing is counted
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(count.exceeded([self.product], [count.read_limit(limit)]), 1)
            self.assertIn("has not counted", said.getvalue())

    def test_counts_of_another_card_do_not_count(self):
        self.assertEqual(model.counts_of([self.product], model.cards["a100"]), {})


class Figures(unittest.TestCase):
    all = benchmarks.read_benchmarks()
    by_name = {(f.dtype, f.case): f for f in all}

    def test_every_benchmark_is_recorded_once_and_launches_something(self):
        self.assertEqual(len(self.by_name), len(self.all))
        self.assertEqual([f.case for f in self.all if not f.launches], [])
        for dtype, case, group in (("f32", "rows/dyt/4096x1024/both", 17), ("f32", "gemm/4096x4096x4096", 5),
                                   ("bf16", "attention/relu/L1024/causal/forward", 24), ("bf16", "train/gpt2-124m", 4)):
            self.assertIn((dtype, case), self.by_name)
            kind = case.split("/")[0]
            self.assertEqual(sum(f.dtype == dtype and f.case.startswith(kind) for f in self.all), group)

    def test_what_is_not_counted_takes_what_the_card_allows_at_least(self):
        benchmark, card = self.by_name["f32", "gemm/2048x2048x2048"], model.cards["a100"]
        seconds, sign = benchmarks.expected(benchmark, card, {})
        self.assertEqual(sign, ">=")
        launches = sum(l.times for l in benchmark.launches)
        self.assertAlmostEqual(seconds, 2 * 2048 ** 3 / (108 * 64 * 2 * 1.41e9) + launches * 2e-6, 9)
        with self.assertRaisesRegex(model.Failure, "has not counted tensor_core_kernel"):
            benchmarks.expected(self.by_name["bf16", "gemm/2048x2048x2048"], card, {})

    def test_a_product_of_bf16_takes_what_its_kernel_was_counted_for(self):
        benchmark, card = self.by_name["bf16", "gemm/4096x4096x4096"], Model.card
        kernel = next(l.kernel for l in benchmark.launches if l.name == "matmul")
        count = {**Model.product, "kernel": kernel}
        of_trip = [{**count, "plain": {**count["plain"], "instructions": n}} for n in (100, 400)]
        fast, slow = (benchmarks.expected(benchmark, card, {kernel: row})[0] for row in of_trip)
        self.assertGreater(fast, 2 * 4096 ** 3 / card.peak)
        self.assertGreater(slow, fast)

    def test_both_forms_of_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, both = pathlib.Path(folder) / "ours", pathlib.Path(folder) / "both"
            ours.write_text('{"case": "attention/relu/L256/full", "dtype": "f32-highest", "ms": 2, "forward_ms": 1}\n')
            both.write_text('{"rows": [{"case": "gemm/2048x2048x2048", "ours": 17.1798692}], "bf16": true}')
            self.assertEqual(benchmarks.read_measured(ours, self.all), {
                ("f32", "attention/relu/L256/full"): 2, ("f32", "attention/relu/L256/full/forward"): 1})
            measured = benchmarks.read_measured(both, self.all)
            self.assertAlmostEqual(measured["bf16", "gemm/2048x2048x2048"], 1000)

    def test_cards_by_the_names_that_nvidia_smi_has_for_them(self):
        for name, card in (("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H200", "h200"), ("NVIDIA H100 PCIe", None),
                           ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100-SXM4-40GB", None),
                           ("NVIDIA H200 NVL", None)):
            self.assertEqual(benchmarks.card_named(name), card, name)


source = """
__global__ void product(float* c, const unsigned* a, int k) {
  float d[4] = {};
  for (int n = 0; n < k; ++n) {
    unsigned r[6];
    for (int i = 0; i < 6; ++i) r[i] = a[(n * 6 + i) * 32 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                   "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]));
  }
  for (int i = 0; i < 4; ++i) c[i * 32 + threadIdx.x] = d[i];
}
__global__ void add(float4* c, const float4* a, int n) {
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    c[i].x += a[i].x, c[i].y += a[i].y, c[i].z += a[i].z, c[i].w += a[i].w;
}
"""


def have_tools():
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            count.find_tools()
        return shutil.which("nvcc") is not None
    except SystemExit:
        return False


@unittest.skipUnless(have_tools(), "nvcc, cuobjdump or nvdisasm is missing")
class Compiled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        (path / "k.cu").write_text(source)
        for arch in ("80", "90"):
            subprocess.run(["nvcc", "-cubin", f"-arch=sm_{arch}", "-o", path / f"k.{arch}.cubin", path / "k.cu"],
                           check=True)
        both = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90")]
        subprocess.run(["nvcc", "-c", *both, "-o", path / "k.o", path / "k.cu"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_count(self, *arguments):
        return subprocess.run([sys.executable, here / "count.py", *arguments], capture_output=True, text=True)

    def test_cubins_and_objects_have_the_same_rows(self):
        path = pathlib.Path(self.folder.name)
        rows = [json.loads(self.run_count(*files, "--json").stdout)
                for files in ((path / "k.80.cubin", path / "k.90.cubin"), (path / "k.o",), (path,))]
        self.assertEqual(rows[0], rows[1])
        self.assertEqual(rows[0], rows[2])
        some = json.loads(self.run_count(path / "k.o", "--kernels", "^add$", "--json").stdout)
        self.assertEqual(some, [r for r in rows[0] if r["kernel"] == "add"])
        by_name = {(r["kernel"], r["arch"]): r for r in rows[0]}
        for arch in ("sm_80", "sm_90"):
            product, add = by_name["product", arch], by_name["add", arch]
            self.assertEqual(product["hmma"] % 4, 0)
            self.assertGreater(product["instructions"], product["hmma"])
            self.assertEqual((add["stored"], add["loaded"]), (16, 32))
            self.assertEqual(add["fp32_mufu"], 4)

    def test_exit_status(self):
        file = pathlib.Path(self.folder.name) / "k.90.cubin"
        self.assertEqual(self.run_count(file, "--at-most", "product=100").returncode, 0)
        self.assertEqual(self.run_count(file, "--at-most", "product=1").returncode, 1)
        self.assertEqual(self.run_count(file, "--at-most", "no such kernel=100").returncode, 1)
        self.assertEqual(self.run_count(file, "--kernels", "no such kernel").returncode, 1)


if __name__ == "__main__":
    unittest.main()
