#!/usr/bin/env python3
"""The recipe wide_deep on files in the form of UCI Adult: trains, evaluates and predicts: wide_deep_test.py MSLUA."""
import os
import random
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
HEADER = ("age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,capital_gain,"
          "capital_loss,hours_per_week,native_country,income")


def rows(count, seed):
    """Incomes that follow a cross of two columns and a number."""
    draw = random.Random(seed)
    for _ in range(count):
        education = draw.choice(["HS-grad", "Bachelors", "Masters"])
        occupation = draw.choice(["Sales", "Craft-repair", "?"])
        hours = draw.randint(10, 60)
        rich = (education == "HS-grad") == (occupation == "Sales") and hours > 25
        yield ",".join([str(draw.randint(17, 80)), "Private", str(draw.randint(10000, 900000)), education, "9",
                        draw.choice(["Divorced", "Never-married"]), occupation, "Husband", "White", "Male",
                        draw.choice(["0", "5013"]), "0", str(hours), "United-States", ">50K" if rich else "<=50K"])


def run(*words):
    done = subprocess.run([MSLUA, *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def main():
    os.chdir(os.environ["TEST_TMPDIR"])
    os.environ["OMP_WAIT_POLICY"] = "passive"  # tests share their cores
    os.makedirs("census")
    for usage, count in ("train", 4000), ("test", 700):
        with open("census/%s.csv" % usage, "w", encoding="ascii") as file:
            print(HEADER, *rows(count, usage), sep="\n", file=file)
    out = run("verify", "wide_deep", "--preset", "smoke", "data_path=census", "accuracy=0.9", "auc=0.95", "epochs=8")
    assert "met" in out, out
    with open("new.csv", "w", encoding="ascii") as file:
        file.write(HEADER.replace(",income", "") + "\n")
        for education in "HS-grad", "Masters":
            file.write("30,Private,1,%s,9,Divorced,Sales,Husband,White,Male,0,0,50,United-States\n" % education)
    run("train", "wide_deep", "--preset", "smoke", "data_path=census", "epochs=30", "--out", "run")
    predicted = run("predict", "wide_deep", "new.csv", "--preset", "smoke", "data_path=census", "--ckpt", "run/ckpt")
    found = [line.split()[:2] for line in predicted.split("\n") if line.startswith("new.csv")]
    assert found == [["new.csv:2", ">50K"], ["new.csv:3", "<=50K"]], predicted


main()
